/**
 * Reads and writes messages as objects, by the tables of `generated/schema.ts`: for everything but inferences, so speed
 * does not matter.
 *
 * The objects have the JSON form of the protocol's HTTP side: scalars have their defaults, unset messages and oneofs
 * are absent.
 */

import { SCHEMA } from './generated/schema.js'
import { Reader, Writer } from './protobuf.js'

interface Field {
  name: string
  number: number
  kind: string
  /** One value, a list, a map with string keys, or a member of a oneof. */
  label: '' | '*' | '{}' | '?'
}

type Message = readonly Field[]
export type Fields = Record<string, unknown>

let tables: { messages: Map<string, Message>; enums: Map<string, Map<number, string>> } | null = null

/** Parsed for the first message: inferences do not need the tables. */
function parsed(): NonNullable<typeof tables> {
  if (tables !== null) return tables
  tables = { messages: new Map(), enums: new Map() }
  for (const line of SCHEMA.split('\n')) {
    const [name = '', rest = ''] = line.split(/: ?/)
    const words = rest === '' ? [] : rest.split(', ').map((part) => part.split(' '))
    if (name.startsWith('#'))
      tables.enums.set(name, new Map(words.map(([value = '', number]) => [Number(number), value])))
    else
      tables.messages.set(
        name,
        words.map(([field = '', number, kind = '']): Field => ({
          name: field,
          number: Number(number),
          ...labelOf(kind),
        })),
      )
  }
  return tables
}

function labelOf(kind: string): Pick<Field, 'kind' | 'label'> {
  const [, plain = '', label = ''] = /^(.*?)(\*|\?|\{\})?$/.exec(kind) ?? []
  return { kind: plain, label: label as Field['label'] }
}

function messageOf(name: string): Message {
  const found = parsed().messages.get(name)
  if (found === undefined) throw new TypeError(`there is no message ${name}`)
  return found
}

const isMessage = (kind: string): boolean => /^[A-Z]/.test(kind)

/** @throws {ClientError} `PROTOCOL` for an invalid message */
export function decode(name: string, bytes: Buffer): Fields {
  return read(messageOf(name), new Reader(bytes))
}

function read(message: Message, reader: Reader): Fields {
  const out: Fields = {}
  for (const { name, kind, label } of message) {
    if (label === '*') out[name] = []
    else if (label === '{}') out[name] = {}
    else if (label === '' && !isMessage(kind)) out[name] = defaultOf(kind)
  }
  for (let number = reader.next(); number !== 0; number = reader.next()) {
    const field = message.find((one) => one.number === number)
    if (field === undefined) reader.skip()
    else readField(field, reader, out)
  }
  return out
}

function readField({ name, kind, label }: Field, reader: Reader, out: Fields): void {
  if (label === '{}') readEntry(kind, reader.message(), out[name] as Fields)
  else if (label !== '*') out[name] = readOne(kind, reader)
  else if (kind === 'string' || kind === 'bytes' || isMessage(kind))
    (out[name] as unknown[]).push(readOne(kind, reader))
  else reader.each((each) => (out[name] as unknown[]).push(readOne(kind, each)))
}

function readEntry(kind: string, reader: Reader, map: Fields): void {
  let key = ''
  let value: unknown = isMessage(kind) ? {} : defaultOf(kind)
  for (let number = reader.next(); number !== 0; number = reader.next()) {
    if (number === 1) key = reader.string()
    else if (number === 2) value = readOne(kind, reader)
    else reader.skip()
  }
  // Not by assignment: a key may be __proto__.
  Object.defineProperty(map, key, { value, enumerable: true, configurable: true, writable: true })
}

function readOne(kind: string, reader: Reader): unknown {
  switch (kind) {
    case 'string':
      return reader.string()
    case 'bytes':
      return reader.bytes()
    case 'bool':
      return reader.bool()
    case 'int':
      return reader.signed()
    case 'uint':
      return reader.unsigned()
    case 'text64':
      return String(reader.signed())
    case 'float':
      return shortest(reader.float())
    case 'double':
      return reader.double()
    default:
      return kind.startsWith('#') ? nameOf(kind, Number(reader.signed())) : read(messageOf(kind), reader.message())
  }
}

function defaultOf(kind: string): unknown {
  if (kind === 'string') return ''
  if (kind === 'bytes') return new Uint8Array(0)
  if (kind === 'bool') return false
  if (kind === 'text64') return '0'
  return kind.startsWith('#') ? nameOf(kind, 0) : 0
}

const nameOf = (kind: string, value: number): string | number => parsed().enums.get(kind)?.get(value) ?? value

/** The number with the fewest digits that rounds to this float. */
function shortest(value: number): number {
  for (let digits = 6; digits < 9; digits += 1)
    if (Math.fround(Number(value.toPrecision(digits))) === value) return Number(value.toPrecision(digits))
  return value
}

/** Undefined members are omitted. */
export function encode(name: string, value: Fields): Buffer {
  const writer = new Writer()
  write(messageOf(name), value, writer)
  return writer.done
}

function write(message: Message, value: Fields, writer: Writer): void {
  for (const { name, number, kind, label } of message) {
    const found = value[name]
    if (found === undefined) continue
    if (label === '*') for (const one of found as unknown[]) writeOne(number, kind, one, writer)
    else if (label === '{}')
      for (const [key, one] of Object.entries(found as Fields))
        writer.message(number, (entry) => writeOne(2, kind, one, entry.requiredString(1, key)))
    else writeOne(number, kind, found, writer)
  }
}

function writeOne(number: number, kind: string, value: unknown, writer: Writer): void {
  if (kind === 'string') writer.requiredString(number, value as string)
  else if (kind === 'bytes') writer.bytes(number, value as Uint8Array)
  else if (kind === 'bool') writer.bool(number, value as boolean)
  else if (kind === 'int' || kind === 'uint') writer.integer(number, value as number | bigint)
  else if (kind === 'double') writer.double(number, value as number)
  else writer.message(number, (inner) => write(messageOf(kind), value as Fields, inner))
}
