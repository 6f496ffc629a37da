/** OpenAPI schemas as examples. Pure. */

export interface Schema {
  $ref?: string
  type?: string | readonly string[]
  format?: string
  description?: string
  const?: unknown
  enum?: readonly unknown[]
  default?: unknown
  anyOf?: readonly Schema[]
  oneOf?: readonly Schema[]
  items?: Schema
  prefixItems?: readonly Schema[]
  minItems?: number
  properties?: Readonly<Record<string, Schema>>
  required?: readonly string[]
  minimum?: number
  maximum?: number
}

export type Schemas = Readonly<Record<string, Schema>>

/** Elements of an example: those of larger tensors are for the user to write. */
const ELEMENTS_MAX = 1000
/** A schema may contain itself. */
const DEPTH_MAX = 12

export const nameOfRef = (ref: string): string => ref.split('/').pop() ?? ''

/** The smallest value that fits: members that may be absent are. */
export function exampleOf(schema: Schema, schemas: Schemas, depth = 0): unknown {
  const inner = (one: Schema): unknown => exampleOf(one, schemas, depth + 1)
  if (depth > DEPTH_MAX) return null
  if (schema.$ref !== undefined) return inner(schemas[nameOfRef(schema.$ref)] ?? {})
  if (schema.default !== undefined) return schema.default
  if (schema.const !== undefined) return schema.const
  if (schema.enum !== undefined) return schema.enum[0]
  const choice = schema.anyOf ?? schema.oneOf
  if (choice !== undefined) return inner(choice.find(({ type }) => type !== 'null') ?? {})
  const [type] = [schema.type ?? 'string'].flat().filter((one) => one !== 'null')
  if (type === 'boolean') return false
  if (type === 'integer' || type === 'number')
    return Math.min(Math.max(1, schema.minimum ?? 1), schema.maximum ?? Infinity)
  if (type === 'array') return listOf(schema, inner)
  return type === 'object' ? objectOf(schema, inner) : 'text'
}

function listOf({ items = {}, prefixItems, minItems = 1 }: Schema, inner: (one: Schema) => unknown): unknown[] {
  if (prefixItems !== undefined) return prefixItems.map(inner)
  // All inputs of a model: one of each kind.
  if (items.oneOf !== undefined && items.oneOf.length === minItems) return items.oneOf.map(inner)
  return Array.from({ length: Math.min(Math.max(1, minItems), ELEMENTS_MAX) }, () => inner(items))
}

function objectOf({ properties = {}, required = [] }: Schema, inner: (one: Schema) => unknown): unknown {
  const object = Object.fromEntries(required.map((name) => [name, inner(properties[name] ?? {})]))
  const { shape, data: { items = {} } = {} } = { shape: object['shape'], data: properties['data'] ?? undefined }
  // A tensor has as many elements as its shape says.
  if (!Array.isArray(shape) || properties['data'] === undefined) return object
  const count = shape.reduce<number>((all, dim) => all * Number(dim), 1)
  return { ...object, data: Array.from({ length: Math.min(count, ELEMENTS_MAX) }, () => inner(items)) }
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s[\]{},:"]+/g

/** JSON with line breaks; flat lists stay on a line, and numbers keep their digits. Other texts stay as they are. */
export function indented(text: string): string {
  try {
    JSON.parse(text)
  } catch {
    return text
  }
  const tokens = text.match(TOKEN) ?? []
  let out = ''
  let depth = 0
  for (let i = 0; i < tokens.length; i += 1) {
    const token = tokens[i] ?? ''
    const line = (): string => `\n${'  '.repeat(depth)}`
    if (token === '{' || token === '[') {
      let end = i + 1
      while (!/^[[\]{}]$/.test(tokens[end] ?? ']')) end += 1
      const isFlat = tokens[end] === (token === '[' ? ']' : '}') && (token === '[' || end === i + 1)
      if (isFlat) {
        out += `${token}${tokens
          .slice(i + 1, end)
          .map((one) => (one === ',' ? ', ' : one))
          .join('')}${tokens[end]}`
        i = end
      } else {
        depth += 1
        out += `${token}${line()}`
      }
    } else if (token === '}' || token === ']') {
      depth -= 1
      out += `${line()}${token}`
    } else out += token === ',' ? `,${line()}` : token === ':' ? ': ' : token
  }
  return out
}
