/**
 * `nereid gen ts`: writes the models of a server, or of a repository, as one file of TypeScript types for
 * `nereid-client`. `--check` compares the file instead.
 *
 * Exit code 0 if the file was written or matches, 1 if it differs or the models are not available, 2 for wrong
 * arguments.
 */

import { readFileSync, statSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, resolve } from 'node:path'
import {
  CommandError,
  commandNamed,
  parseObject,
  readArguments,
  remoteOf,
  resolveSettings,
  type ModelDescription,
  type Remote,
} from '../../internal.js'
import { replaceFile } from '../replace.js'
import { modelsOfRepository, modelsOfServer } from './source.js'
import { MARK, typescriptOf } from './typescript.js'

/** Modules that contain the client: its own package, or a part of the server's. */
const MODULES = ['nereid-client', 'nereid/client'] as const

export async function run(program: string, args: readonly string[]): Promise<number> {
  const command = commandNamed('gen')
  let request: GenRequest
  try {
    request = readRequest(readArguments(command, args))
  } catch (error) {
    if (!(error instanceof CommandError)) throw error
    process.stderr.write(`${error.message}; see ${program} help gen\n`)
    return 2
  }
  try {
    const models = await find(request)
    if (request.check !== null) return compare(request.check, models, request.module)
    const text = typescriptOf(models, request.module ?? installed(request.out === null ? '.' : dirname(request.out)))
    if (request.out === null) process.stdout.write(text)
    else writeOut(request.out, text)
    return 0
  } catch (error) {
    // Unwritable files and failed loads: the message suffices.
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`)
    return 1
  }
}

/** Writes to pipes and devices instead of replacing them. */
function writeOut(out: string, text: string): void {
  if (statSync(out, { throwIfNoEntry: false })?.isFile() === false) writeFileSync(out, text)
  else replaceFile(out, text, 0o666)
}

interface GenRequest {
  remote: Remote | null
  repository: string | null
  models: string[] | null
  /** Null selects the installed module. */
  module: string | null
  out: string | null
  check: string | null
}

function readRequest({ rest, options }: ReturnType<typeof readArguments>): GenRequest {
  if (rest.length !== 1 || rest[0] !== 'ts')
    throw new CommandError(
      `gen makes ts (types for TypeScript)${rest.length === 0 ? ': gen ts' : `, not '${rest.join(' ')}'`}`,
    )
  const given = (name: string) => options.get(name) ?? null
  const [url, repository] = [given('url'), given('model-repository')]
  if ((url === null) === (repository === null))
    throw new CommandError('gen ts needs either --url=<http://host:port> or --model-repository=<path>')
  const names = given('models')
    ?.split(',')
    .filter((name) => name !== '')
  return {
    remote: url === null ? null : remoteOf(url, given('header')),
    repository,
    models: names ?? null,
    module: given('import'),
    out: given('out'),
    check: given('check'),
  }
}

async function find({ remote, repository, models }: GenRequest): Promise<ModelDescription[]> {
  if (remote !== null) return await modelsOfServer(remote, models)
  const parsed = parseObject({ modelRepository: [repository ?? ''] })
  return await modelsOfRepository(resolveSettings(parsed).settings, models)
}

/** The module from which a file in this directory can import the client. */
function installed(directory: string): string {
  const { resolve: find } = createRequire(resolve(directory, 'models.js'))
  for (const module of MODULES) {
    try {
      find(module)
      return module
    } catch {
      // Not installed, or a package of this name without a client.
    }
  }
  const [first, second] = MODULES
  process.stderr.write(
    `neither ${first} nor ${second} is installed in ${resolve(directory)}: the file imports ${first}, which ` +
      "'npm install PATH/client' installs from a built clone of Nereid at PATH; --import=MODULE names another\n",
  )
  return first
}

/** Compares the file with the models. Without `module`, the import of the client may be any. */
function compare(file: string, models: readonly ModelDescription[], module: string | null): number {
  const there = readFileSync(file, 'utf8')
  const text = typescriptOf(models, module ?? /^import type .* from '([^']+)'$/m.exec(there)?.[1] ?? MODULES[0])
  if (there === text) return 0
  if (!there.startsWith(MARK)) {
    process.stderr.write(`${file} was not made by 'gen ts': its first line differs\n`)
    return 1
  }
  const [old, now] = [blocks(there), blocks(text)]
  const of = (names: string[], what: string) => (names.length === 0 ? [] : [`${what}: ${names.join(', ')}`])
  const lines = [
    ...of(
      [...now.keys()].filter((name) => !old.has(name)),
      'not in the file',
    ),
    ...of(
      [...old.keys()].filter((name) => !now.has(name)),
      'no longer there',
    ),
    ...of(
      [...now.keys()].filter((name) => old.has(name) && old.get(name) !== now.get(name)),
      'changed',
    ),
  ]
  process.stderr.write(
    `${file} and the models differ; run gen ts again.\n${lines.map((line) => `  ${line}\n`).join('')}`,
  )
  return 1
}

/** The text of each model in a file. */
function blocks(text: string): Map<string, string> {
  const found = text.matchAll(/^ {2}('(?:[^'\\]|\\.)*'|[\w$]+): \{\n(?: {4}.*\n)* {2}\}$/gm)
  return new Map([...found].map(([block, name = '']) => [name, block]))
}
