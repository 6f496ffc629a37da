/** Nereid as a user starts it: the command line, models by name, out of one repository or several. */
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { MODELS } from '../models/generate.mjs'
import { freePort, start } from '../lib/process.mjs'

export async function startNereid(root, { models, repository = MODELS, flags = [], name = 'Nereid', env = {} }) {
  const [http, grpc, metrics] = [await freePort(), await freePort(), await freePort()]
  const chosen = models === undefined ? [] : ['--model-control-mode=explicit', ...models.map((m) => `--load-model=${m}`)]
  const started = await start(
    name,
    process.execPath,
    [
      join(root, 'dist/cli/main.js'),
      ...[repository].flat().map((directory) => `--model-repository=${directory}`),
      ...chosen,
      '--http-address=127.0.0.1',
      '--grpc-address=127.0.0.1',
      `--http-port=${http}`,
      `--grpc-port=${grpc}`,
      `--metrics-port=${metrics}`,
      ...flags,
    ],
    { ready: /Started HTTPService at/, cwd: root, timeoutMs: 120_000, env },
  )
  return { ...subject(name, started.child, { http, grpc, metrics }), readyMs: started.readyMs }
}

/** Threads come and go, processes do not: Nereid is one. */
export function subject(name, child, ports) {
  return { name, kind: 'nereid', child, pids: () => [child.pid], ...ports }
}


/** Bytes of a model's file. */
export function modelBytes(name) {
  const directory = join(MODELS, name, '1')
  return readdirSync(directory).reduce((sum, file) => sum + statSync(join(directory, file)).size, 0)
}
