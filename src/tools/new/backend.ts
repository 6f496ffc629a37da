/** `nereid new backend`: writes the smallest backend for Triton's C API, what builds it, a model and a test. */

import { basename, join } from 'node:path'
import { CommandError, ROOT, invocation, isBuiltIn, shellWord, type CommandArguments } from '../../internal.js'
import type { ModelFile } from '../init/place.js'
import { backendFiles, type BackendLanguage } from './templates.js'
import { installHint } from './install_hint.js'
import { writeFiles } from './write.js'

const HEADERS = ['tritonserver.h', 'tritonbackend.h']

/** @throws {CommandError} for a name that no library, function or package can have, or that another backend has */
function requireBackendName(name: string): void {
  if (!/^[a-z][a-z0-9_]{0,63}$/.test(name))
    throw new CommandError(
      `'${basename(name)}' can not name a backend: its library and its package need up to 64 lower-case letters, ` +
        "digits and '_', a letter first",
    )
  if (isBuiltIn(name))
    throw new CommandError(`the backend '${name}' is built in and would run instead: choose another name`)
}

/** Writes the files and returns what to print. */
export function makeBackend(program: string, name: string, options: CommandArguments['options']): string {
  requireBackendName(name)
  const language: BackendLanguage = options.get('lang') === 'rust' ? 'rust' : 'c'
  const out = options.get('out') ?? '.'
  const command = invocation(program)
  const headers: ModelFile[] = HEADERS.map((header) => ({
    from: join(ROOT, 'shm/include/triton/core', header),
    to: join('include/triton/core', header),
  }))
  const files = writeFiles(out, name, [...backendFiles(name, language, command), ...headers], options.has('force'))
  const directory = join(out, name)
  const at = (path: string): string => shellWord(join(directory, path))
  return `${[
    ...files,
    '',
    'Build it:',
    `  make -C ${shellWord(directory)}`,
    '',
    'Test it:',
    ...[`node --test ${at('test.mjs')}`, ...installHint(out)].map((line) => `  ${line}`),
    '',
    'Serve it:',
    `  ${command} --model-repository=${at('models')} --backend-directory=${at('backends')}`,
  ].join('\n')}\n`
}
