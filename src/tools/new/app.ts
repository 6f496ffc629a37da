/** `nereid new app`: writes a project in TypeScript with a server, a model, a client and tests. */

import { join } from 'node:path'
import { CommandError, shellWord, type CommandArguments } from '../../internal.js'
import { dependencyOnSelf } from './install_hint.js'
import { appFiles } from './templates.js'
import { writeFiles } from './write.js'

/** npm installs no package into a project of the same name, and none into one of these directories. */
const TAKEN = ['nereid', 'node_modules', 'typescript', 'vitest']

/** Writes the files and returns what to print. */
export function makeApp(name: string, options: CommandArguments['options']): string {
  if (!/^[a-z0-9][a-z0-9._-]{0,213}$/.test(name) || TAKEN.includes(name))
    throw new CommandError(
      `'${name}' can not name a project: npm needs up to 214 lower-case letters, digits, '_', '-' and '.', a letter ` +
        `or digit first, and not ${TAKEN.join(', ')}`,
    )
  const out = options.get('out') ?? '.'
  const nereid = dependencyOnSelf()
  const files = writeFiles(out, name, appFiles(name, nereid), options.has('force'))
  const linked = nereid.startsWith('file:') ? ['', `Its package.json links nereid in ${nereid.slice(5)}.`] : []
  return `${[
    ...files,
    ...linked,
    '',
    'Install and test it:',
    `  cd ${shellWord(join(out, name))}`,
    '  npm install',
    '  npm test',
    '',
    'Start it:',
    '  npm start',
    '',
    'Send a request, in another terminal:',
    '  npm run ask -- 1 2 3',
  ].join('\n')}\n`
}
