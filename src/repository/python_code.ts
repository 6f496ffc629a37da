/**
 * Compiles the code of a model with the interpreter that would run it, which runs nothing of it. What an import finds, only a load tells.
 *
 * The interpreter is chosen as the core does (`backend_python::search`). Without one nothing is told: it may be there where the model is served.
 */

import { execFile } from 'node:child_process'
import { accessSync, constants } from 'node:fs'
import { delimiter, isAbsolute, join } from 'node:path'
import { statIfAny, type ModelConfig } from '../config/index.js'
import { environmentOf } from './named_files.js'
import { settingsOf, type RepositorySettings } from './settings.js'

const COMPILE_MS_MAX = 30_000
/** A larger file is not compiled. */
const CODE_BYTES_MAX = 16n << 20n
const ANSWER_BYTES_MAX = 64 * 1024

/**
 * Prints the mistake as JSON: class, text, line, first and last column. A class that is not made here may come by `import *`, or by a text
 * that names it.
 */
const SCRIPT = `
import ast, json, sys, warnings
warnings.simplefilter('ignore')
path = sys.argv[1]
def tell(*words):
    print(json.dumps(words))
    sys.exit(0)
with open(path, 'rb') as file:
    source = file.read()
try:
    tree = ast.parse(source, path)
    compile(tree, path, 'exec', dont_inherit=True)
except SyntaxError as e:
    tell(type(e).__name__, e.msg, e.lineno, e.offset, getattr(e, 'end_offset', None) if getattr(e, 'end_lineno', None) == e.lineno else None)
except ValueError as e:
    tell(type(e).__name__, str(e), None, None, None)
NAME = 'TritonPythonModel'
for node in ast.walk(tree):
    if getattr(node, 'name', None) in (NAME, '*') or getattr(node, 'asname', None) == NAME or getattr(node, 'id', None) == NAME or getattr(node, 'value', None) == NAME or getattr(node, 's', None) == NAME:
        tell()
tell('AttributeError', 'the code has no class ' + NAME, None, None, None)
`

export interface CodeMistake {
  /** As Python says it: `SyntaxError: invalid syntax`. */
  message: string
  file: string
  /** From 1; null of the file as a whole. */
  line: number | null
  /** From 1, in characters. */
  column: number | null
  endColumn: number | null
}

/** @returns null when it compiles, or cannot be compiled here */
export async function codeMistake(config: ModelConfig, modelDirectory: string, versionDirectory: string, settings: RepositorySettings): Promise<CodeMistake | null> {
  const file = join(versionDirectory, config.defaultModelFilename)
  const stat = statIfAny(file)
  if (!file.endsWith('.py') || stat?.isFile() !== true || stat.size > CODE_BYTES_MAX) return null
  const program = programOf(config, modelDirectory, settings)
  const told = program === null ? null : await compile(program, file)
  if (told === null) return null
  const [kind = '', text = '', ...place] = told
  const [line = null, column = null, endColumn = null] = place.map((one) => (typeof one === 'number' && one > 0 ? one : null))
  return { message: `${String(kind)}: ${String(text)}`, file, line, column, endColumn }
}

/** Fails where a module is not found. Not isolated: packages of the user count, the working directory does not. */
const FIND = `import importlib.util, sys
sys.path[:] = [path for path in sys.path if path]
sys.exit(importlib.util.find_spec(sys.argv[1]) is None)
`

/** @returns what is to be said of an interpreter without the module that runs a model; null when it has it, or cannot be asked here */
export async function missingModule(module: string, config: ModelConfig, modelDirectory: string, settings: RepositorySettings): Promise<string | null> {
  const program = programOf(config, modelDirectory, settings)
  if (program === null) return null
  const status = await new Promise<unknown>((done) => execFile(program, ['-c', FIND, module], { timeout: COMPILE_MS_MAX }, (error) => done(error?.code ?? 0)))
  return status === 1 ? `${program} has no module '${module}', which runs this model: get it with ${program} -m pip install ${module}, or name another interpreter with NEREID_PYTHON` : null
}

const programOf = (config: ModelConfig, modelDirectory: string, settings: RepositorySettings): string | null =>
  interpreterOf(environmentOf(config, modelDirectory), settingsOf(settings, 'python').find(({ key }) => key === 'python-executable')?.value)

function compile(program: string, file: string): Promise<unknown[] | null> {
  return new Promise((done) => {
    execFile(program, ['-I', '-S', '-c', SCRIPT, file], { timeout: COMPILE_MS_MAX, maxBuffer: ANSWER_BYTES_MAX }, (error, stdout) => {
      try {
        const told: unknown = error === null ? JSON.parse(stdout) : null
        done(Array.isArray(told) && told.length > 0 ? told : null)
      } catch {
        done(null)
      }
    })
  })
}

function interpreterOf(environment: string | null, configured: string | undefined): string | null {
  if (environment !== null) {
    // What is in an archive is not known before it is unpacked.
    return [join(environment, 'bin/python'), join(environment, 'bin/python3')].find(isProgram) ?? null
  }
  const chosen = configured ?? process.env['NEREID_PYTHON']
  if (chosen !== undefined && chosen !== '') return chosen.includes('/') ? chosen : onPath(chosen)
  const roots = [process.env['VIRTUAL_ENV'], process.env['CONDA_PREFIX']].filter((root) => root !== undefined && root !== '')
  return roots.map((root) => join(root ?? '', 'bin/python')).find(isProgram) ?? onPath('python3') ?? onPath('python')
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
