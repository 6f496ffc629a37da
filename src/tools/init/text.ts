/** Text models: the folder of a hub becomes a version, with what is read or assumed of it in the configuration. */

import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import {
  CommandError,
  ServerError,
  TEXT_FILES,
  ownCode,
  parsePbtxt,
  plainReason,
  runPython,
  shellWord,
  statIfAny,
  textFolderOf,
  userPython,
  type TextFolder,
} from '../../internal.js'
import { quoted } from './config_text.js'
import { jsonExample, type Example } from './example.js'
import { isFile, type ModelFile } from './place.js'

/** True for a folder whose texts a tokenizer of its own prepares. */
export const isTextFolder = (path: string): boolean =>
  TEXT_FILES.every((name) => statIfAny(join(path, name))?.isFile() === true)

/** The script that exports a folder, and the folder. */
const EXPORT = ownCode('text', 'nereid_text_export.py')
/** An export traces the model, runs it in two frameworks and may write some gigabytes. */
const EXPORT_MS_MAX = 3_600_000

/** The facts of a folder, and the parameters that choose among its files. */
export interface TextPlan extends Omit<TextFolder, 'file'> {
  parameters: Readonly<Record<string, string>>
}

/**
 * Reads a folder as a load does.
 *
 * @param file the graph, below the folder; undefined if the folder decides
 * @throws {CommandError} for a folder that is no text model, or has no graph
 */
export function textFolder(
  path: string,
  source: string,
  file: string | undefined,
  command: string,
): { text: TextPlan; graph: string } {
  const parameters = file === undefined ? {} : { file }
  const config = parsePbtxt(`name: "m" backend: "text" ${parameterLines(parameters).join(' ')}`, '')
  try {
    const found = textFolderOf(config, path)
    if (found === null) throw new CommandError('text models need the native module of this platform')
    const { role, guesses } = found
    return { text: { role, guesses, parameters }, graph: found.file }
  } catch (error) {
    if (!(error instanceof ServerError)) throw error
    if (error.code !== 'NOT_FOUND' || file !== undefined)
      throw new CommandError(`${source} is not a text model: ${plainReason(error)}`)
    throw new CommandError(
      `${source} has no model.onnx. This writes ${join(source, 'onnx/model.onnx')}, with a Python that has torch, ` +
        `transformers, onnx and onnxruntime:\n  python3 ${shellWord(EXPORT)} ${shellWord(source)}\n` +
        `or, together with the model repository:\n  ${command} init ${shellWord(source)} --export`,
    )
  }
}

/**
 * Writes the graph of a folder, with the interpreter that models of Python have.
 *
 * @throws {CommandError} with the reason of the script
 */
export async function exportFolder(path: string, source: string): Promise<void> {
  if (!isTextFolder(path)) throw new CommandError(`${source} has no config.json with a tokenizer.json: see --export`)
  const program = userPython()
  if (program === null) throw new CommandError('there is no Python here to export with; NEREID_PYTHON names one')
  process.stderr.write(`exporting ${source}: torch may take some minutes\n`)
  const { failure, stdout } = await runPython(program, [EXPORT, path], EXPORT_MS_MAX)
  if (failure !== null) throw new CommandError(failure)
  process.stderr.write(stdout)
}

/** Files of a version: the graph, and what describes it and its tokenizer. Weights of other frameworks stay. */
export function textFiles(path: string, graph: readonly string[]): ModelFile[] {
  const below = readdirSync(path, { withFileTypes: true })
  const described = below.flatMap((entry) => {
    const name = entry.isDirectory() ? join(entry.name, 'config.json') : entry.name
    return name.endsWith('.json') && !name.startsWith('.') && isFile(join(path, name)) ? [name] : []
  })
  return [...graph, ...described.sort()].map((name) => ({ from: join(path, name), to: join('1', name) }))
}

/** The configuration; what the files say, and what is assumed, is in comments. The server fills in input and output. */
export function textConfigText(name: string, { role, guesses, parameters }: TextPlan, batch: number): string {
  const out = { embed: 'an embedding', rerank: 'a score for each pair', classify: 'a value for each class' }[role]
  return [
    `# Written by \`nereid init\`. A text model: texts in, ${out ?? 'values'} out.`,
    `name: ${quoted(name)}`,
    'backend: "text"',
    '# Maximum texts of a request over the v2 API; other endpoints divide their lists.',
    `max_batch_size: ${batch}`,
    ...parameterLines(parameters),
    '',
    '# Values from the files of the model, or defaults. Remove a # to override a value.',
    ...guesses.flatMap(({ name: key, isParameter, value, from }) =>
      isParameter ? [`# ${key} (${from}):`, `# ${parameterLine(key, value)}`] : [`# ${key} (${from}): ${value}`],
    ),
    '',
    '# Other names of the model for clients, and the tokenizer whose token ids they may send:',
    `# ${parameterLine('nereid.alias', 'text-embedding-3-small tokens=cl100k_base; another-name')}`,
    '',
  ].join('\n')
}

const parameterLine = (key: string, value: string): string =>
  `parameters { key: ${quoted(key)} value { string_value: ${quoted(value)} } }`

const parameterLines = (parameters: Readonly<Record<string, string>>): string[] =>
  Object.entries(parameters).map(([key, value]) => parameterLine(key, value))

/** A first request to the endpoint of a role. */
export function textExample(model: string, role: string): Example {
  if (role === 'rerank') {
    const documents = ['Bonn was the capital.', 'Berlin is the capital of Germany.']
    return jsonExample('/v1/rerank', { model, query: 'What is the capital of Germany?', documents })
  }
  return jsonExample(role === 'classify' ? '/classify' : '/v1/embeddings', { model, input: 'What is a tensor?' })
}
