/**
 * Prints a configuration as Triton does: the body of GET …/config and the text passed to backends.
 *
 * This is not protobuf's own JSON: names are snake_case, defaults are printed, and 64-bit integers are numbers except
 * for three that Triton's code omits. The bytes must match, because clients compare them.
 */
import { ScalarType, type DescEnum, type DescField, type DescMessage } from '@bufbuild/protobuf'
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect'
import { ModelConfigSchema, type ModelConfig } from './generated/model_config_pb.js'

/** 64-bit fields that stay strings. */
const STRING_INTEGERS = new Set([
  'inference.ModelInstanceGroup.SecondaryDevice.device_id',
  'inference.ModelOptimizationPolicy.Cuda.GraphSpec.Shape.dim',
  'inference.ModelSequenceBatching.InitialState.dims',
])

/** The JSON form, on one line without spaces. */
export function toTritonJson(config: ModelConfig): string {
  return printMessage(reflect(ModelConfigSchema, config))
}

function printMessage(message: ReflectMessage): string {
  const parts = printOrder(message.desc)
    .filter((field) => isPrinted(message, field))
    .map((field) => `"${field.name}":${printField(message, field)}`)
  return `{${parts.join(',')}}`
}

/**
 * Declaration order, with two exceptions: scalar members of a oneof come last (`"name":"zero","zero_data":true`), and
 * an output's reshape follows its dims.
 */
function printOrder(desc: DescMessage): DescField[] {
  const rank = (field: DescField): number => {
    if (field.oneof !== undefined && field.fieldKind !== 'message') return 2
    return desc.typeName === 'inference.ModelOutput' && ['name', 'data_type', 'dims', 'reshape'].includes(field.name)
      ? 0
      : 1
  }
  return desc.fields.toSorted((a, b) => rank(a) - rank(b))
}

function isPrinted(message: ReflectMessage, field: DescField): boolean {
  return (field.oneof === undefined && field.fieldKind !== 'message') || message.isSet(field)
}

function printField(message: ReflectMessage, field: DescField): string {
  switch (field.fieldKind) {
    case 'message':
      return printMessage(message.get(field))
    case 'enum':
      return printEnum(field.enum, message.get(field))
    case 'scalar':
      return printScalar(field, field.scalar, message.get(field))
    case 'list':
      return `[${[...message.get(field)].map((item) => printItem(field, item)).join(',')}]`
    case 'map': {
      const print = ([key, value]: [unknown, unknown]) => `${printString(String(key))}:${printItem(field, value)}`
      return `{${[...message.get(field)].map(print).join(',')}}`
    }
  }
}

function printItem(field: DescField & { fieldKind: 'list' | 'map' }, item: unknown): string {
  if (field.message !== undefined) return printMessage(item as ReflectMessage)
  if (field.enum !== undefined) return printEnum(field.enum, item as number)
  return printScalar(field, field.scalar as ScalarType, item)
}

function printEnum(desc: DescEnum, value: number): string {
  // An unnamed number is a valid value in proto3.
  return desc.value[value] === undefined ? String(value) : `"${desc.value[value].name}"`
}

function printScalar(field: DescField, type: ScalarType, value: unknown): string {
  switch (type) {
    case ScalarType.STRING:
      return printString(value as string)
    case ScalarType.INT64:
    case ScalarType.UINT64:
      return STRING_INTEGERS.has(`${field.parent.typeName}.${field.name}`) ? `"${value}"` : String(value)
    case ScalarType.FLOAT:
      return printFloat(shortestFloat(value as number))
    case ScalarType.DOUBLE:
      return printFloat(value as number)
    default:
      return String(value)
  }
}

/** The decimal with the fewest digits that rounds to this 32-bit float. */
function shortestFloat(value: number): number {
  for (let digits = 6; digits < 9; digits++) {
    const short = Number(value.toPrecision(digits))
    if (Math.fround(short) === Math.fround(value)) return short
  }
  return value
}

function printFloat(value: number): string {
  if (Number.isFinite(value)) return Object.is(value, -0) ? '-0' : String(value)
  return Number.isNaN(value) ? '"NaN"' : value > 0 ? '"Infinity"' : '"-Infinity"'
}

/** Like `JSON.stringify`, with Triton's capital hex digits. */
function printString(value: string): string {
  return JSON.stringify(value).replaceAll(/(\\\\)|(\\u[0-9a-f]{4})/g, (all, _slash, escape?: string) =>
    escape === undefined ? all : `\\u${escape.slice(2).toUpperCase()}`,
  )
}
