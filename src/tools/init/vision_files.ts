/**
 * Facts about a vision model beside its graph: `preprocessor_config.json` and `config.json` in the form of Hugging
 * Face, and the metadata that Ultralytics writes into ONNX files.
 *
 * The files are untrusted: bytes, nesting, names and numbers are limited, and a field of another type is rejected.
 */

import { basename, dirname, join } from 'node:path'
import { CommandError, ServerError, plainReason, readRegularFile, statIfAny } from '../../internal.js'

/** Size limit of each file. The configuration of 21,841 classes has about 2 MiB. */
const BYTES_MAX = 8 << 20
const DEPTH_MAX = 32
/** Maximum number of names of classes, and of characters of one. */
const NAMES_MAX = 65_536
const NAME_MAX = 1024
/** Longest side of a picture that a configuration may ask for. */
export const SIDE_MAX = 16_384
/** Characters of a value that an error shows. */
const SHOWN_MAX = 60

/** A width and height; sides that keep the aspect ratio: the shorter one, or the largest ones; or a bare number. */
export type Size =
  | { width: number; height: number }
  | { shortest: number; longest: number | null }
  | { widthMax: number; heightMax: number }
  | { side: number }

/** The fields of a JSON file. Each read checks the type, and treats null as absent. */
export class Fields {
  readonly #asked = new Set<string>()
  readonly file: string
  readonly #values: Readonly<Record<string, unknown>>

  constructor(file: string, values: object) {
    this.file = file
    this.#values = values as Record<string, unknown>
  }

  get keys(): string[] {
    return Object.keys(this.#values)
  }

  /** Keys that were not read. */
  get others(): string[] {
    return this.keys.filter((key) => !this.#asked.has(key))
  }

  #value(key: string): unknown {
    this.#asked.add(key)
    return Object.hasOwn(this.#values, key) ? (this.#values[key] ?? undefined) : undefined
  }

  has(key: string): boolean {
    return this.#value(key) !== undefined
  }

  text(key: string): string | undefined {
    const value = this.#value(key)
    if (value === undefined || (typeof value === 'string' && value.length <= NAME_MAX)) return value
    throw this.#wrong(key, `a text of up to ${NAME_MAX} characters`)
  }

  flag(key: string, fallback: boolean): boolean {
    const value = this.#value(key)
    if (value === undefined || typeof value === 'boolean') return value ?? fallback
    throw this.#wrong(key, 'true or false')
  }

  /** A number above 0. */
  number(key: string): number | undefined {
    const value = this.#value(key)
    if (value === undefined || (typeof value === 'number' && value > 0 && value < 1e9)) return value
    throw this.#wrong(key, 'a number above 0')
  }

  /** A number from 0 to 5: a filter of Pillow. */
  filter(key: string): number | undefined {
    const value = this.#value(key)
    if (value === undefined || (typeof value === 'number' && [0, 1, 2, 3, 4, 5].includes(value))) return value
    throw this.#wrong(key, 'a filter of Pillow, 0 to 5')
  }

  /** Numbers of channels: three, or one for all. */
  channels(key: string): number[] | undefined {
    const value = this.#value(key)
    const list: unknown[] | undefined = typeof value === 'number' ? [value] : Array.isArray(value) ? value : undefined
    if (value === undefined) return undefined
    const isNumber = (one: unknown): one is number => typeof one === 'number' && Math.abs(one) < 1e6
    if (list === undefined || !list.every(isNumber) || ![1, 3].includes(list.length))
      throw this.#wrong(key, 'three numbers')
    const [first = 0] = list
    return list.length === 3 ? list : [first, first, first]
  }

  /** @param side field with the maximum of the longer side, in files of older releases */
  size(key: string, longestKey: string): Size | undefined {
    const value = this.#value(key)
    if (value === undefined) return undefined
    if (typeof value === 'number') {
      const side = this.#side(key, value)
      return this.has(longestKey) ? { shortest: side, longest: this.number(longestKey) ?? null } : { side }
    }
    if (typeof value !== 'object' || value === null) throw this.#wrong(key, 'a number or an object with sides')
    const sides = value as Record<string, unknown>
    const side = (name: string): number => this.#side(`${key}.${name}`, sides[name])
    if ('height' in sides) return { width: side('width'), height: side('height') }
    if ('shortest_edge' in sides)
      return { shortest: side('shortest_edge'), longest: 'longest_edge' in sides ? side('longest_edge') : null }
    if ('longest_edge' in sides) return { widthMax: side('longest_edge'), heightMax: side('longest_edge') }
    if ('max_height' in sides) return { widthMax: side('max_width'), heightMax: side('max_height') }
    throw this.#wrong(key, 'height and width, shortest_edge, longest_edge, or max_height and max_width')
  }

  #side(key: string, value: unknown): number {
    if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= SIDE_MAX) return value
    throw new CommandError(`${this.file}: '${key}' is ${shown(value)}, expected a side of 1 to ${SIDE_MAX} pixels`)
  }

  /** Names by number, as in `id2label`; null without the field. */
  names(key: string): string[] | null {
    const value = this.#value(key)
    if (value === undefined) return null
    if (typeof value !== 'object' || value === null || Array.isArray(value)) throw this.#wrong(key, 'names by number')
    return namesOf(Object.entries(value), `${this.file}: '${key}'`)
  }

  #wrong(key: string, expected: string): CommandError {
    return new CommandError(`${this.file}: '${key}' is ${shown(this.#values[key])}, expected ${expected}`)
  }
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? 'missing'
  return text.length > SHOWN_MAX ? `${text.slice(0, SHOWN_MAX)}…` : text
}

/** Names of classes by id. An id without a name is empty; a name is one line. */
function namesOf(entries: readonly (readonly [id: string, name: unknown])[], what: string): string[] {
  if (entries.length > NAMES_MAX) throw new CommandError(`${what} has more than ${NAMES_MAX} names`)
  const names: string[] = []
  for (const [id, name] of entries) {
    const at = /^\d{1,6}$/.test(id) ? Number(id) : NAMES_MAX
    if (at >= NAMES_MAX) throw new CommandError(`${what} has the id ${shown(id)}, expected 0 to ${NAMES_MAX - 1}`)
    if (typeof name !== 'string' || name.length > NAME_MAX)
      throw new CommandError(`${what} has ${shown(name)} as the name of ${id}, expected up to ${NAME_MAX} characters`)
    while (names.length < at) names.push('')
    names[at] = name.replace(/\s+/g, ' ').trim()
  }
  return names
}

/** A JSON object beside a model; null if there is no such file. */
function objectIn(directory: string, name: string): Fields | null {
  const path = join(directory, name)
  if (statIfAny(path) === undefined) return null
  const text = textOf(path)
  if (nesting(text) > DEPTH_MAX) throw new CommandError(`${path} is nested more than ${DEPTH_MAX} deep`)
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    throw new CommandError(`${path} is not JSON: ${error instanceof Error ? error.message : String(error)}`)
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new CommandError(`${path} is ${shown(value)}, expected an object`)
  return new Fields(path, value)
}

function textOf(path: string): string {
  try {
    return readRegularFile(path, BYTES_MAX, `${path} is too large`).toString('utf8')
  } catch (error) {
    if (error instanceof ServerError) throw new CommandError(plainReason(error))
    throw error
  }
}

/** Depth of brackets outside of strings, as far as it is JSON. */
function nesting(text: string): number {
  let [depth, most, isString] = [0, 0, false]
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at]
    if (isString) {
      if (character === '\\') at += 1
      else if (character === '"') isString = false
    } else if (character === '"') isString = true
    else if (character === '{' || character === '[') most = Math.max(most, (depth += 1))
    else if (character === '}' || character === ']') depth -= 1
  }
  return most
}

/** Files of a hub: in the directory of the graph, or above it if that is named onnx. */
export function hubFiles(graph: string): { preprocessor: Fields | null; config: Fields | null } {
  const directory = dirname(graph)
  const places = basename(directory) === 'onnx' ? [directory, dirname(directory)] : [directory]
  const first = (name: string): Fields | null =>
    places.map((place) => objectIn(place, name)).find((found) => found !== null) ?? null
  return { preprocessor: first('preprocessor_config.json'), config: first('config.json') }
}

/** Metadata that Ultralytics writes into its files. */
export interface Ultralytics {
  /** detect, classify, segment, pose, obb. */
  task: string
  names: string[] | null
  /** Size of pictures, for a file that takes any. */
  size: { width: number; height: number } | null
  stride: number | null
}

/** null for a file without its metadata. */
export function ultralyticsOf(metadata: ReadonlyMap<string, string | null>): Ultralytics | null {
  const task = metadata.get('task')
  const [names, size, stride] = [metadata.get('names'), metadata.get('imgsz'), metadata.get('stride')]
  if (task === undefined || task === null || names === undefined) return null
  const [, height = 0, width = 0] = (/^\[(\d{1,5}), ?(\d{1,5})\]$/.exec(size ?? '') ?? []).map(Number)
  return {
    task: task.slice(0, SHOWN_MAX),
    names: names === null ? null : dictionary(names),
    size: [width, height].every((side) => side > 0 && side <= SIDE_MAX) ? { width, height } : null,
    stride: /^\d{1,4}$/.test(stride ?? '') ? Number(stride) : null,
  }
}

/** An id and a name in a dictionary as Python prints it. */
const ENTRY = /\s*['"]?(\d{1,6})['"]?\s*:\s*(?:'((?:[^'\\]|\\.){0,1024})'|"((?:[^"\\]|\\.){0,1024})")\s*(?:,|\}\s*$)/y
const ESCAPE = /\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|(.))/gi

/** Names of the metadata `names`, such as `{0: 'person', 1: 'bicycle'}`; null for another text. */
function dictionary(text: string): string[] | null {
  const entries: [string, string][] = []
  ENTRY.lastIndex = text.indexOf('{') + 1
  while (ENTRY.lastIndex < text.length) {
    const found = ENTRY.exec(text)
    if (found === null || entries.length === NAMES_MAX) return null
    const [, id = '', single, double = ''] = found
    entries.push([id, (single ?? double).replace(ESCAPE, unescaped)])
  }
  return namesOf(entries, "the metadata 'names'")
}

function unescaped(all: string, x?: string, u?: string, long?: string, one = ''): string {
  const digits = x ?? u ?? long
  if (digits === undefined) return { n: '\n', r: '\r', t: '\t' }[one] ?? (/[\\'"]/.test(one) ? one : all)
  const code = Number.parseInt(digits, 16)
  return code <= 0x10ffff ? String.fromCodePoint(code) : all
}
