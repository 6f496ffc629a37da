/**
 * Reads a configuration from JSON: the load parameter `config`, and the completed configuration of a backend.
 *
 * The rules are those of protobuf's reader, which merges members in order: a repeated key replaces a scalar, merges a
 * message, appends to a list or a map; a second member of a oneof is rejected; a single value for a list is a list of
 * one. Names are snake_case or lowerCamelCase, enum values in any case, 64-bit integers numbers or strings. Nothing is
 * merged with a file, and an unknown key is an error.
 */
import { ScalarType, type DescEnum, type DescField, type DescMessage } from '@bufbuild/protobuf'
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect'
import { invalid, quoted } from './error.js'
import type { ModelConfig } from './generated/model_config_pb.js'
import { ModelConfigSchema } from './generated/model_config_pb.js'
import { JsonNumber, JsonObject, JsonSyntaxError, readJson, type JsonValue } from './json_value.js'
import { CONFIG_BYTES_MAX } from './files.js'
import { emptyConfig } from './pbtxt.js'
import { nearest } from './suggest.js'

/**
 * Reads a configuration in JSON form. The output of `toTritonJson` is accepted unchanged.
 *
 * @throws {ConfigError} INVALID_ARG `Invalid config override: …`
 */
export function parseJsonConfig(text: string): ModelConfig {
  const config = emptyConfig()
  if (text.length > CONFIG_BYTES_MAX)
    throw invalid(`Invalid config override: ${text.length} characters, at most ${CONFIG_BYTES_MAX} are read`)
  try {
    readMessage(reflect(ModelConfigSchema, config), readJson(text), '')
  } catch (error) {
    if (error instanceof Mismatch || error instanceof JsonSyntaxError)
      throw invalid(`Invalid config override: ${error.message}`)
    throw error
  }
  return config
}

/** Well-formed JSON that is no `ModelConfig`. */
class Mismatch extends Error {}

const INTEGER_RANGES: Partial<Record<ScalarType, [bigint, bigint, string]>> = {
  [ScalarType.INT32]: [-2147483648n, 2147483647n, 'TYPE_INT32'],
  [ScalarType.UINT32]: [0n, 4294967295n, 'TYPE_UINT32'],
  [ScalarType.INT64]: [-9223372036854775808n, 9223372036854775807n, 'TYPE_INT64'],
  [ScalarType.UINT64]: [0n, 18446744073709551615n, 'TYPE_UINT64'],
}

/** Strings that mean true. */
const TRUE_WORDS = new Set(['true', 't', 'yes', 'y', '1'])
const FALSE_WORDS = new Set(['false', 'f', 'no', 'n', '0'])

function readMessage(message: ReflectMessage, value: JsonValue, path: string): void {
  if (!(value instanceof JsonObject)) throw mismatch(path, value, message.desc.typeName)
  // Oneofs set by this object: a later object of the same name may set another member, which replaces the first.
  const taken = new Set<string>()
  for (const [key, item] of value.members) {
    const field = message.desc.fields.find((f) => f.name === key || f.jsonName === key)
    if (field === undefined) {
      const near = nearest(
        key,
        message.desc.fields.map((f) => f.name),
      )
      const hint = near === null ? '' : ` Did you mean "${near}"?`
      throw new Mismatch(`${at(path)}${quoted(key)}: Cannot find field.${hint}`)
    }
    if (item === null) continue
    const inner = path === '' ? field.name : `${path}.${field.name}`
    // The same member a second time is rejected as well.
    if (field.oneof !== undefined && taken.has(field.oneof.name)) {
      const why = `oneof field '${field.oneof.name}' is already set. Cannot set '${key}'`
      throw new Mismatch(`${at(path).trimEnd()}: invalid value ${why} for type oneof`)
    }
    if (field.oneof !== undefined) taken.add(field.oneof.name)
    readField(message, field, item, inner)
  }
}

function readField(message: ReflectMessage, field: DescField, value: JsonValue, path: string): void {
  switch (field.fieldKind) {
    case 'message': {
      const part = message.isSet(field) ? message.get(field) : reflect(field.message)
      readMessage(part, value, path)
      return message.set(field, part)
    }
    case 'list': {
      const list = message.get(field)
      if (!Array.isArray(value)) return void list.add(readItem(field, value, path))
      return value.forEach((item, index) => list.add(readItem(field, item, `${path}[${index}]`)))
    }
    case 'map': {
      if (!(value instanceof JsonObject)) throw mismatch(path, value, 'Map')
      const map = message.get(field)
      const keys = new Set<string>()
      for (const [key, item] of value.members) {
        // Another object of the same map may repeat a key, one object may not.
        if (keys.has(key))
          throw new Mismatch(`${at(path)}${quoted(key)}: Repeated map key: '${quoted(key)}' is already set.`)
        keys.add(key)
        // Maps are plain objects in memory, in which this one key is no property.
        if (key === '__proto__') throw mismatch(path, key, 'map key')
        map.set(readMapKey(field.mapKey, key, path), readItem(field, item, `${path}["${quoted(key)}"]`))
      }
      return
    }
    case 'enum':
      return message.set(field, readEnum(field.enum, value, path))
    case 'scalar':
      return message.set(field, readScalar(field.scalar, value, path))
  }
}

function readItem(field: DescField & { fieldKind: 'list' | 'map' }, value: JsonValue, path: string): unknown {
  const desc: DescMessage | undefined = field.message
  if (desc !== undefined) {
    const part = reflect(desc)
    readMessage(part, value, path)
    return part
  }
  if (field.enum !== undefined) return readEnum(field.enum, value, path)
  return readScalar(field.scalar as ScalarType, value, path)
}

function readMapKey(type: ScalarType, key: string, path: string): unknown {
  return readScalar(type, key, path)
}

function readEnum(desc: DescEnum, value: JsonValue, path: string): number {
  if (value instanceof JsonNumber) return Number(readInteger(ScalarType.INT32, value, path))
  const name = typeof value === 'string' ? value.toUpperCase().replaceAll('-', '_') : null
  // A quoted number is valid too if the enum has it.
  const found = desc.values.find((v) => v.name === name || String(v.number) === value)
  if (found === undefined) throw mismatch(path, value, desc.typeName)
  return found.number
}

function readScalar(type: ScalarType, value: JsonValue, path: string): unknown {
  switch (type) {
    case ScalarType.STRING:
      if (typeof value !== 'string') throw mismatch(path, value, 'TYPE_STRING')
      // An unpaired surrogate has no UTF-8 form.
      if (Buffer.from(value).toString() !== value) throw mismatch(path, value, 'TYPE_STRING')
      return value
    case ScalarType.BOOL:
      if (typeof value === 'string' && TRUE_WORDS.has(value.toLowerCase())) return true
      if (typeof value === 'string' && FALSE_WORDS.has(value.toLowerCase())) return false
      if (typeof value !== 'boolean') throw mismatch(path, value, 'TYPE_BOOL')
      return value
    case ScalarType.FLOAT:
      // Decimals up to here round to the largest float, whose own shortest form is already larger.
      return readFloat(value, path, 'TYPE_FLOAT', 3.4028235677973366e38)
    case ScalarType.DOUBLE:
      return readFloat(value, path, 'TYPE_DOUBLE', Number.MAX_VALUE)
    case ScalarType.INT64:
    case ScalarType.UINT64:
      return readInteger(type, value, path)
    default:
      return Number(readInteger(type, value, path))
  }
}

function readInteger(type: ScalarType, value: JsonValue, path: string): bigint {
  const [min, max, name] = INTEGER_RANGES[type] ?? [0n, 0n, String(type)]
  const number =
    value instanceof JsonNumber ? integerOf(value.text) : typeof value === 'string' ? integerInQuotes(value) : null
  if (number === null || number < min || number > max) throw mismatch(path, value, name)
  return number
}

/** Parses `12`, `-3`, and integers in other spellings: `1.0`, `5e3`. */
function integerOf(text: string): bigint | null {
  // 21 characters hold every 64-bit integer; longer text would only cost time.
  if (/^-?[0-9]{1,20}$/.test(text)) return BigInt(text)
  const number = Number(text)
  return Number.isSafeInteger(number) ? BigInt(number) : null
}

/** Only digits: a quoted `"1.0"` is no integer. */
function integerInQuotes(text: string): bigint | null {
  return /^[+-]?[0-9]{1,20}$/.test(text) ? BigInt(text.replace('+', '')) : null
}

function readFloat(value: JsonValue, path: string, type: string, max: number): number {
  const text = value instanceof JsonNumber ? value.text : value
  if (typeof value === 'string') {
    if (text === 'NaN') return Number.NaN
    if (text === 'Infinity') return Number.POSITIVE_INFINITY
    if (text === '-Infinity') return Number.NEGATIVE_INFINITY
  }
  const number =
    typeof text === 'string' && /^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?$/.test(text)
      ? Number(text)
      : Number.NaN
  if (!(Math.abs(number) <= max)) throw mismatch(path, value, type)
  return type === 'TYPE_FLOAT' ? Math.fround(number) : number
}

function mismatch(path: string, value: JsonValue, type: string): Mismatch {
  return new Mismatch(`(${path === '' ? 'root' : path}): invalid value ${show(value)} for type ${type}`)
}

function at(path: string): string {
  return path === '' ? '' : `(${path}) `
}

/** A short form of any value for an error. */
function show(value: JsonValue): string {
  if (value instanceof JsonNumber) return value.text.slice(0, 40)
  if (value instanceof JsonObject) return 'Object'
  if (Array.isArray(value)) return 'List'
  return JSON.stringify(value).slice(0, 80)
}
