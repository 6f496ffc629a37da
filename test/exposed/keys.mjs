/** A keys file as `nereid key` makes it, and the keys whose hashes are in it. */
import { execFileSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ROOT } from '../../scripts/setup.mjs'
import { QUOTAS } from './quotas.mjs'

export function makeKeys(directory) {
  const file = join(directory, 'keys.json')
  const make = (...args) =>
    execFileSync(process.execPath, [join(ROOT, 'dist/cli/main.js'), 'key', file, ...args], {
      encoding: 'utf8',
      timeout: 60_000,
      stdio: ['ignore', 'pipe', 'pipe'],
    }).trim()
  // No key is made that has ended already: time passes for this one.
  const ended = make('--name=ended', '--scope=all', '--expires=90d')
  const text = JSON.parse(readFileSync(file, 'utf8'))
  text.keys.find(({ name }) => name === 'ended').expires = '2020-01-01'
  writeFileSync(file, JSON.stringify(text))
  return {
    file,
    operator: make('--name=operator', '--scope=all'),
    app: make('--name=app', '--scope=inference,metadata:simple'),
    ...Object.fromEntries(
      Object.entries(QUOTAS).map(([name, flags]) => [name, make(`--name=${name}`, '--scope=all', ...flags)]),
    ),
    ended,
  }
}
