/** Files as elements of BYTES inputs. */

import { invalid } from './errors.js'
import type { FileSource, TensorData, TensorInput } from './types.js'

/** Reads a file of this path; absent in browsers. */
export type ReadFile = (path: string) => Promise<Uint8Array>

export function isFile(value: unknown): value is FileSource {
  if (typeof value !== 'object' || value === null) return false
  return value instanceof Blob || ('path' in value && typeof value.path === 'string' && !('data' in value))
}

/** Files of an input: one, or a list of rows. */
function filesOf(input: TensorInput): readonly FileSource[] | null {
  const data: unknown = isFile(input) || Array.isArray(input) || !('data' in input) ? input : input.data
  if (isFile(data)) return [data]
  return Array.isArray(data) && data.length > 0 && data.every(isFile) ? data : null
}

/**
 * Inputs with the contents of their files. Other inputs stay as they are.
 *
 * @throws {ClientError} `INVALID_ARG` naming the input and the file that cannot be read
 */
export function readFiles(
  inputs: readonly [string, TensorInput][],
  readFile: ReadFile | null,
): readonly [string, TensorInput][] | Promise<[string, TensorInput][]> {
  if (inputs.every(([, input]) => filesOf(input) === null)) return inputs
  return Promise.all(
    inputs.map(async ([name, input]): Promise<[string, TensorInput]> => {
      const files = filesOf(input)
      if (files === null) return [name, input]
      const data: TensorData = await Promise.all(files.map((file) => contents(name, file, readFile)))
      return [name, isFile(input) || Array.isArray(input) ? data : ({ ...input, data } as TensorInput)]
    }),
  )
}

async function contents(name: string, file: FileSource, readFile: ReadFile | null): Promise<Uint8Array> {
  if (!(file instanceof Blob) && readFile === null)
    throw invalid(`input '${name}': there are no paths in a browser: give it a File or a Blob`)
  try {
    if (file instanceof Blob) return new Uint8Array(await file.arrayBuffer())
    return await (readFile as ReadFile)(file.path)
  } catch (error) {
    const what = file instanceof Blob ? 'its file' : `'${file.path}'`
    throw invalid(`input '${name}': cannot read ${what}: ${error instanceof Error ? error.message : String(error)}`)
  }
}
