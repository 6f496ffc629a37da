/**
 * Compiles a model's Python code with the interpreter of its runner, without running it. Only a load checks imports.
 *
 * The interpreter is chosen as in the core (`backend_python::search`). Without an interpreter nothing is reported: the
 * serving machine may have one.
 */

import { execFile } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { delimiter, isAbsolute, join } from 'node:path'
import { statIfAny, type ModelConfig } from '../config/index.js'
import { environmentOf } from './named_files.js'
import { settingsOf, type RepositorySettings } from './settings.js'

const COMPILE_MS_MAX = 30_000
/** Larger files are not compiled. */
const CODE_BYTES_MAX = 16n << 20n
const ANSWER_BYTES_MAX = 64 * 1024

/**
 * Prints the error as JSON: class, text, line, first and last column. Does not report a missing class if it may come
 * from `import *` or is named in a string.
 */
const SCRIPT = `
import ast, json, sys, warnings
warnings.simplefilter('ignore')
path = sys.argv[1]
def report(*words):
    print(json.dumps(words))
    sys.exit(0)
with open(path, 'rb') as file:
    source = file.read()
try:
    tree = ast.parse(source, path)
    compile(tree, path, 'exec', dont_inherit=True)
except SyntaxError as e:
    same_line = getattr(e, 'end_lineno', None) == e.lineno
    report(type(e).__name__, e.msg, e.lineno, e.offset, getattr(e, 'end_offset', None) if same_line else None)
except ValueError as e:
    report(type(e).__name__, str(e), None, None, None)
NAME = 'TritonPythonModel'
for node in ast.walk(tree):
    names = [getattr(node, field, None) for field in ('name', 'asname', 'id', 'value', 's')]
    if NAME in names or names[0] == '*':
        report()
report('AttributeError', 'the code has no class ' + NAME, None, None, None)
`

export interface CodeMistake {
  /** In Python's format: `SyntaxError: invalid syntax`. */
  message: string
  file: string
  /** Line, from 1; null if the error concerns the whole file. */
  line: number | null
  /** First column, from 1, in characters. */
  column: number | null
  endColumn: number | null
}

/** @returns null if the code compiles, or cannot be compiled here */
export async function codeMistake(
  config: ModelConfig,
  modelDirectory: string,
  versionDirectory: string,
  settings: RepositorySettings,
): Promise<CodeMistake | null> {
  const file = join(versionDirectory, config.defaultModelFilename)
  const stat = statIfAny(file)
  if (!file.endsWith('.py') || stat?.isFile() !== true || stat.size > CODE_BYTES_MAX) return null
  const program = programOf(config, modelDirectory, settings)
  const found = program === null ? null : await compile(program, file)
  if (found === null) return null
  const [kind = '', text = '', ...place] = found
  const positions = place.map((one) => (typeof one === 'number' && one > 0 ? one : null))
  const [line = null, column = null, endColumn = null] = positions
  return { message: `${String(kind)}: ${String(text)}`, file, line, column, endColumn }
}

/** Fails if a module is not found. Not isolated: the user's packages count, the working directory does not. */
const FIND = `import importlib.util, sys
sys.path[:] = [path for path in sys.path if path]
sys.exit(importlib.util.find_spec(sys.argv[1]) is None)
`

/** @returns a warning that the interpreter lacks the module that runs a model; null if it has it or cannot be run */
export async function missingModule(
  module: string,
  config: ModelConfig,
  modelDirectory: string,
  settings: RepositorySettings,
): Promise<string | null> {
  const program = programOf(config, modelDirectory, settings)
  if (program === null) return null
  const status = await new Promise<unknown>((done) => {
    execFile(program, ['-c', FIND, module], { timeout: COMPILE_MS_MAX }, (error) => done(error?.code ?? 0))
  })
  if (status !== 1) return null
  const advice = `get it with ${program} -m pip install ${module}, or name another interpreter with NEREID_PYTHON`
  return `${program} has no module '${module}', which runs this model: ${advice}`
}

const ASK_MS_MAX = 60_000

/** The interpreter of models that name none; null if there is none. */
export const userPython = (): string | null => interpreterOf(null, undefined)

/** Runs a program; if it fails, `failure` is the last line that it says. `signal` ends it. */
export function runPython(
  program: string,
  args: readonly string[],
  timeout: number,
  env: Readonly<Record<string, string>> = {},
  signal?: AbortSignal,
): Promise<{ failure: string | null; stdout: string }> {
  return new Promise((done) => {
    const options = { timeout, maxBuffer: ANSWER_BYTES_MAX, env: { ...process.env, ...env } }
    const child = execFile(program, args, options, (error, stdout, stderr) => {
      const said = stderr.trim().split('\n').at(-1) ?? ''
      done({ failure: error === null ? null : said === '' ? error.message : said, stdout })
    })
    // Node's own option would resolve before the program has ended.
    signal?.addEventListener('abort', () => child.kill('SIGKILL'))
  })
}

/**
 * Runs a program that prints JSON, with the interpreter of models that name none.
 *
 * @returns null if there is no interpreter, or it fails: it may lack a module
 */
export async function askPython(args: readonly string[]): Promise<unknown> {
  const program = userPython()
  return program === null ? null : await answerOf(program, args, ASK_MS_MAX)
}

const programOf = (config: ModelConfig, modelDirectory: string, settings: RepositorySettings): string | null =>
  interpreterOf(
    environmentOf(config, modelDirectory),
    settingsOf(settings, 'python').find(({ key }) => key === 'python-executable')?.value,
  )

async function compile(program: string, file: string): Promise<unknown[] | null> {
  const found = await answerOf(program, ['-I', '-S', '-c', SCRIPT, file], COMPILE_MS_MAX)
  return Array.isArray(found) && found.length > 0 ? found : null
}

/** The JSON that a program prints; null if it fails or prints none. */
function answerOf(program: string, args: readonly string[], timeout: number): Promise<unknown> {
  return new Promise((done) => {
    execFile(program, args, { timeout, maxBuffer: ANSWER_BYTES_MAX }, (error, stdout) => {
      try {
        done(error === null ? JSON.parse(stdout) : null)
      } catch {
        done(null)
      }
    })
  })
}

function interpreterOf(environment: string | null, configured: string | undefined): string | null {
  if (environment !== null) {
    // The contents of an archive are unknown before it is unpacked.
    return [join(environment, 'bin/python'), join(environment, 'bin/python3')].find(isProgram) ?? null
  }
  const chosen = configured ?? process.env['NEREID_PYTHON']
  if (chosen !== undefined && chosen !== '') return chosen.includes('/') ? chosen : onPath(chosen)
  const roots = [process.env['VIRTUAL_ENV'], process.env['CONDA_PREFIX']]
  const programs = roots.map((root) => (root === undefined || root === '' ? '' : join(root, 'bin/python')))
  return programs.find(isProgram) ?? onPath('python3') ?? onPath('python')
}

function onPath(name: string): string | null {
  const directories = (process.env['PATH'] ?? '').split(delimiter).filter(isAbsolute)
  return directories.map((directory) => join(directory, name)).find(isProgram) ?? null
}

function isProgram(path: string): boolean {
  if (statIfAny(path)?.isFile() !== true) return false
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}
