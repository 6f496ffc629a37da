/** A registry on loopback that has only what was published to it: an installation from it needs no other. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { answers, start } from '../../bench/lib/process.mjs'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { tool } from './tools.mjs'

const CONFIG = `storage: ./storage
auth: { htpasswd: { file: ./htpasswd, max_users: -1 } }
uplinks: {}
packages:
  '**': { access: $all, publish: $all }
web: { enable: false }
max_body_size: 100mb
log: { type: stdout, format: pretty, level: warn }
`

/** Starts it in `directory`. Resolves with its address; `endAll` ends the processes. */
export async function startRegistry(directory) {
  mkdirSync(directory, { recursive: true })
  const config = join(directory, 'config.yaml')
  writeFileSync(config, CONFIG)
  const [port] = await freePorts(1)
  const url = `http://127.0.0.1:${port}/`
  await start('verdaccio', process.execPath, [tool('verdaccio'), '--config', config, '--listen', `127.0.0.1:${port}`], {
    cwd: directory,
    ready: answers(`${url}-/ping`),
  })
  return url
}
