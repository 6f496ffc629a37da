/**
 * `nereid dev REPOSITORY`: serves a repository on this machine, and reloads a model when one of its files is saved.
 * While the newest files of a model do not load, requests get the error.
 *
 * Ends as a server does; exit code 1 for a mistake in the arguments.
 */

import { resolve } from 'node:path'
import {
  CommandError,
  OptionError,
  absentHint,
  commandNamed,
  fileHint,
  readOptions,
  serve,
  statIfAny,
  usageOf,
  type Parsed,
} from '../../internal.js'
import { isModel } from '../check/targets.js'
import { modelsIn, Reloads } from './reloads.js'
import { Watch } from './watch.js'

const LOOPBACK = '127.0.0.1'

/** Nobody else waits for this server: code that never ends its import may not delay the end for longer. */
const EXIT_TIMEOUT_SECS = 2

export async function run(program: string, args: readonly string[]): Promise<number> {
  let parsed: Parsed
  try {
    parsed = await optionsOf(program, args)
  } catch (error) {
    if (!(error instanceof OptionError)) throw error
    process.stderr.write(`error: ${error.message}\n`)
    return 1
  }
  const print = (text: string): void => void process.stdout.write(`${text}\n`)
  const root = resolve(parsed.options.modelRepository[0] ?? '')
  const reloads = new Reloads(root, print)
  // Before the models load, so that no change is missed.
  const watch = new Watch(
    root,
    (path) => reloads.changed(path),
    (warning) => print(`Warning: ${warning}`),
  )
  await serve(program, parsed, async ({ repository, failures }) => {
    await reloads.begin(repository, failures)
    print(`Watching ${root}: a model is loaded again when one of its files is saved. Ctrl-C ends the server.`)
    return async () => {
      watch.close()
      await reloads.end()
    }
  })
  return 0
}

/** The options of the server: the defaults are for one person at this machine. */
async function optionsOf(program: string, args: readonly string[]): Promise<Parsed> {
  const command = commandNamed('dev')
  const operands: string[] = []
  const parsed = await readOptions(args, process.env, operands)
  const { options, given } = parsed
  if (options.version) return parsed
  const [path = '', ...others] = operands
  if (path === '' || others.length > 0)
    throw new CommandError(
      `${usageOf(program, command)}\nName one model repository; got ` +
        `${operands.length === 0 ? 'none' : operands.join(', ')}`,
    )
  if (given.has('model-repository') && options.modelRepository.length > 0)
    throw new CommandError(`dev serves one repository, ${path}: leave out --model-repository`)
  if (given.has('model-control-mode') && options.modelControlMode !== 'explicit')
    throw new CommandError(`dev loads the models that change: leave out --model-control-mode`)
  // The names of models would not be those of their directories.
  if (options.modelNamespacing) throw new CommandError('dev serves one repository: leave out --model-namespacing')
  const stat = statIfAny(path)
  if (stat === undefined) throw new CommandError(`model repository '${path}' is missing${absentHint(path)}`)
  if (!stat.isDirectory()) throw new CommandError(`'${path}' is not a directory${fileHint(path)}`)
  if (isModel(path))
    throw new CommandError(`'${path}' is a model: name the directory above, ${program} dev ${resolve(path, '..')}`)
  options.modelRepository = [path]
  options.modelControlMode = 'explicit'
  if (!given.has('load-model')) options.loadModel = modelsIn(path)
  if (!given.has('exit-on-error')) options.exitOnError = false
  if (!given.has('exit-timeout-secs')) options.exitTimeoutSecs = EXIT_TIMEOUT_SECS
  if (!given.has('http-address')) options.httpAddress = LOOPBACK
  if (!given.has('grpc-address')) options.grpcAddress = LOOPBACK
  return parsed
}
