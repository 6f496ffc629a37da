/** Nereid as a user starts it: the command line, models by name, out of one repository or several. */
import { readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { processTree, start } from '../lib/process.mjs'
import { MODELS } from '../models/generate.mjs'

/** A certificate of prime256v1 for localhost, and its key: those that the attacks use. */
export const [CERTIFICATE, KEY] = ['certificate', 'key'].map((name) =>
  fileURLToPath(new URL(`../../test/attacks/lib/tls/${name}.pem`, import.meta.url)),
)

/** The command that starts Nereid, or what takes its flags, on free ports of loopback, and the ports. */
export async function nereidCommand(root, repositories, flags, program = ['dist/cli/main.js']) {
  const ports = await freePorts(3)
  const [http, grpc, metrics] = ports
  const models = repositories.map((directory) => `--model-repository=${directory}`)
  const [file, ...words] = program
  const command = [process.execPath, join(root, file), ...words, ...models, ...listenFlags(ports), ...flags]
  return { command, ports: { http, grpc, metrics } }
}

/**
 * @param {string} root of the clone
 * @param {{ models?: string[], repository?: string | string[], flags?: string[], name?: string, env?: object,
 *   program?: string[], ready?: RegExp, group?: string }} options `group` is the directory of a control group
 */
export async function startNereid(
  root,
  {
    models,
    repository = MODELS,
    flags = [],
    name = 'Nereid',
    env = {},
    program,
    group,
    ready = /Started HTTPService at/,
  },
) {
  const chosen =
    models === undefined ? [] : ['--model-control-mode=explicit', ...models.map((m) => `--load-model=${m}`)]
  const { command, ports } = await nereidCommand(root, [repository].flat(), [...chosen, ...flags], program)
  const options = { ready, cwd: root, timeoutMs: 120_000, env }
  // The shell enters the group before it becomes the server, which may look at its quota when it starts.
  const enter = group === undefined ? [] : ['sh', '-c', 'echo $$ > "$0/cgroup.procs" && exec "$@"', group]
  const [first, ...words] = [...enter, ...command]
  const started = await start(name, first, words, options)
  return { ...subject(name, started.child, ports), readyMs: started.readyMs }
}

/** Processes that run models are children; the server itself comes first. */
export function subject(name, child, ports) {
  return { name, kind: 'nereid', child, pids: () => processTree(child.pid), ...ports }
}

/** Bytes of a model's file. */
export function modelBytes(name) {
  const directory = join(MODELS, name, '1')
  return readdirSync(directory).reduce((sum, file) => sum + statSync(join(directory, file)).size, 0)
}
