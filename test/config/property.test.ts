// Any configuration survives every form, and on any text readers throw only their own errors. Seeded.
import { create, ScalarType, toJson, toJsonString, type DescField, type DescMessage } from '@bufbuild/protobuf'
import { reflect, type ReflectMessage } from '@bufbuild/protobuf/reflect'
import { toText } from '@bufbuild/protobuf/txtpb'
import { expect, test } from 'vitest'
import {
  ConfigError,
  fromBinary,
  normalise,
  parseJsonConfig,
  parsePbtxt,
  toBinary,
  toTritonJson,
  validate,
} from '../../src/config/index.js'
import { ModelConfigSchema, type ModelConfig } from '../../src/config/generated/model_config_pb.js'
import { ADDSUB_CONFIG, random } from './helpers.js'

type Random = () => number
const pick = <T>(r: Random, items: readonly T[]): T => items[Math.floor(r() * items.length)] as T

const STRINGS = [
  '',
  'a',
  'with "quotes" and \'more\'',
  'back\\slash',
  'line\nbreak\ttab',
  'é😀',
  '\u0000\u001f\u007f',
  '{}<>[],;:#',
  'constructor',
  '18446744073709551615',
]
const FLOATS = [
  0,
  0.5,
  -1.5,
  1e-30,
  0.1,
  3.4028234663852886e38,
  Number.POSITIVE_INFINITY,
  Number.NEGATIVE_INFINITY,
  Number.NaN,
]

function scalar(r: Random, type: ScalarType): unknown {
  switch (type) {
    case ScalarType.STRING:
      return pick(r, STRINGS)
    case ScalarType.BOOL:
      return r() < 0.5
    case ScalarType.INT32:
      return pick(r, [0, 1, -1, 2147483647, -2147483648])
    case ScalarType.UINT32:
      return pick(r, [0, 1, 4294967295])
    case ScalarType.INT64:
      return pick(r, [0n, -1n, 16n, 9223372036854775807n, -9223372036854775808n])
    case ScalarType.UINT64:
      return pick(r, [0n, 7n, 18446744073709551615n])
    case ScalarType.FLOAT:
      return Math.fround(pick(r, FLOATS))
    case ScalarType.DOUBLE:
      return pick(r, [...FLOATS, 0.1 + 0.2, 1e300])
    default:
      throw new Error(`no generator for scalar type ${type}`)
  }
}

function message(r: Random, desc: DescMessage, density: number): ReflectMessage {
  const made = reflect(desc, create(desc))
  for (const field of desc.fields) {
    if (r() < density && (field.oneof === undefined || made.oneofCase(field.oneof) === undefined))
      fill(r, made, field, density)
  }
  return made
}

function fill(r: Random, target: ReflectMessage, field: DescField, density: number): void {
  const one = (): unknown => {
    if (field.message !== undefined) return message(r, field.message, density)
    if (field.enum !== undefined) return pick(r, field.enum.values).number
    return scalar(r, field.scalar as ScalarType)
  }
  const times = Math.floor(r() * 4)
  if (field.fieldKind === 'list') {
    const list = target.get(field)
    for (let i = 0; i < times; i++) list.add(one())
  } else if (field.fieldKind === 'map') {
    const map = target.get(field)
    for (let i = 0; i < times; i++) map.set(scalar(r, field.mapKey), one())
  } else {
    target.set(field, one())
  }
}

function anyConfig(seed: number): ModelConfig {
  const r = random(seed)
  return message(r, ModelConfigSchema, 0.2 + r() * 0.6).message as ModelConfig
}

test('C-32 any configuration is the same after text, JSON and bytes', () => {
  for (let seed = 1; seed <= 300; seed++) {
    const config = anyConfig(seed)
    const json = toTritonJson(config)
    expect(parsePbtxt(toText(ModelConfigSchema, config), ''), `seed ${seed}, text`).toEqual(config)
    expect(parseJsonConfig(json), `seed ${seed}, JSON`).toEqual(config)
    expect(fromBinary(toBinary(config)), `seed ${seed}, bytes`).toEqual(config)
    // At least it is JSON.
    JSON.parse(json)
  }
})

test('any configuration is normalised, and validated or refused with a ConfigError', () => {
  for (let seed = 1; seed <= 300; seed++) {
    const config = normalise(anyConfig(seed))
    expect(normalise(config), `seed ${seed}`).toEqual(config)
    onlyConfigErrors(`seed ${seed}`, () =>
      validate({ ...config, name: 'm', backend: 'b', platform: '', maxBatchSize: 4 }, { io: true }),
    )
  }
})

/** The top-level fields that a configuration sets, each alone. */
function parts(config: ModelConfig): [DescField, ModelConfig][] {
  const whole = reflect(ModelConfigSchema, config)
  return ModelConfigSchema.fields.flatMap((field): [DescField, ModelConfig][] => {
    if (!whole.isSet(field)) return []
    const alone = create(ModelConfigSchema)
    const one = reflect(ModelConfigSchema, alone)
    if (field.fieldKind === 'list') for (const item of whole.get(field)) one.get(field).add(item)
    else if (field.fieldKind === 'map') for (const [key, value] of whole.get(field)) one.get(field).set(key, value)
    else one.set(field, whole.get(field))
    return [[field, alone]]
  })
}

/** The protobuf rule for concatenated messages: lists and maps grow, scalars are replaced, messages merge. */
const merged = (...configs: ModelConfig[]): ModelConfig => fromBinary(Buffer.concat(configs.map(toBinary)))

function failureOf(act: () => unknown): string {
  try {
    act()
    return 'none'
  } catch (error) {
    if (error instanceof ConfigError) return error.message
    throw error
  }
}

test('C-28 in text a singular field twice is refused by name, a list or a map grows', () => {
  const refused = { twice: 0, oneof: 0, grown: 0 }
  for (let seed = 1; seed <= 150; seed++) {
    const config = anyConfig(seed)
    const text = toText(ModelConfigSchema, config)
    for (const [field, alone] of parts(config)) {
      const doubled = `${text}\n${toText(ModelConfigSchema, alone)}`
      if (field.fieldKind === 'list' || field.fieldKind === 'map') {
        refused.grown++
        expect(parsePbtxt(doubled, 'f'), `seed ${seed}, ${field.name}`).toEqual(merged(config, alone))
      } else {
        refused.twice++
        expect(
          failureOf(() => parsePbtxt(doubled, 'f')),
          `seed ${seed}`,
        ).toContain(`Non-repeated field "${field.name}" is specified multiple times.`)
      }
    }
    const choice = config.schedulingChoice.case
    for (const other of ['dynamic_batching', 'sequence_batching', 'ensemble_scheduling']) {
      if (choice === undefined || other === choice.replaceAll(/[A-Z]/g, (c) => `_${c.toLowerCase()}`)) continue
      refused.oneof++
      expect(
        failureOf(() => parsePbtxt(`${text} ${other} { }`, 'f')),
        `seed ${seed}`,
      ).toMatch(/another member of oneof "scheduling_choice"\.$/)
    }
  }
  for (const [what, count] of Object.entries(refused)) expect(count, what).toBeGreaterThan(50)
})

test('C-32 two configurations in one JSON object merge as on the wire', () => {
  let met = 0
  let clashed = 0
  for (let seed = 1; seed <= 300; seed++) {
    const [first, second] = [anyConfig(seed), anyConfig(seed + 5000)]
    const json = [first, second].map((c) => toJsonString(ModelConfigSchema, c, { useProtoFieldName: seed % 2 === 0 }))
    const both = `${json[0]?.slice(0, -1)}${json[0] === '{}' || json[1] === '{}' ? '' : ','}${json[1]?.slice(1)}`
    if (first.schedulingChoice.case !== undefined && second.schedulingChoice.case !== undefined) {
      clashed++
      expect(
        failureOf(() => parseJsonConfig(both)),
        `seed ${seed}`,
      ).toContain("oneof field 'scheduling_choice' is already set")
    } else {
      met++
      expect(parseJsonConfig(both), `seed ${seed}`).toEqual(merged(first, second))
    }
  }
  expect(Math.min(met, clashed)).toBeGreaterThan(50)
})

test('C-32 every spelling of JSON that protobuf reads means the same', () => {
  for (let seed = 1; seed <= 200; seed++) {
    const config = anyConfig(seed)
    const r = random(seed)
    const blank = (): string => pick(r, ['', '', ' ', '\n', '\t', '\r\n'])
    const text = (value: string): string => {
      if (r() < 0.5) return JSON.stringify(value)
      return `'${value.replaceAll(/['\\]/g, (c) => `\\${c}`)}'`
    }
    const print = (value: unknown): string => {
      const end = (): string => (r() < 0.3 ? `${blank()},${blank()}` : blank())
      if (Array.isArray(value)) {
        // One value is a list of one, except a list in a list, which does not exist.
        if (value.length === 1 && r() < 0.5) return print(value[0])
        return value.length === 0 ? '[]' : `[${blank()}${value.map(print).join(`${blank()},${blank()}`)}${end()}]`
      }
      if (value !== null && typeof value === 'object') {
        const members = Object.entries(value).map(
          ([key, item]) => `${/^[a-z_]+$/.test(key) && r() < 0.3 ? key : text(key)}${blank()}:${blank()}${print(item)}`,
        )
        return members.length === 0 ? '{}' : `{${blank()}${members.join(`${blank()},${blank()}`)}${end()}}`
      }
      if (typeof value === 'string') return text(value)
      if (typeof value === 'boolean' && r() < 0.3) return `"${value}"`
      return JSON.stringify(value)
    }
    const json = print(toJson(ModelConfigSchema, config, { useProtoFieldName: r() < 0.5 }))
    expect(parseJsonConfig(json), `seed ${seed}: ${json}`).toEqual(config)
  }
})

test('bytes that are no UTF-8 are refused or stand where they mean nothing', () => {
  const r = random(7)
  let refused = 0
  for (let seed = 1; seed <= 300; seed++) {
    const bytes = Buffer.from(`# caf\u00e9\n${toText(ModelConfigSchema, anyConfig(seed)).slice(0, 3000)}`)
    bytes[Math.floor(r() * bytes.length)] = 0x80 + Math.floor(r() * 0x80)
    try {
      // No configuration here has this character, so only a lossy decoder can produce it.
      expect(toTritonJson(parsePbtxt(bytes, 'f')), `seed ${seed}`).not.toContain('\ufffd')
    } catch (error) {
      if (!(error instanceof ConfigError)) throw error
      refused++
    }
  }
  expect(refused).toBeGreaterThan(200)
})

const PIECES = [
  '{',
  '}',
  'dims: 1 dims: [2]',
  'name: "twice"',
  'max_batch_size: 3',
  'sequence_batching { }',
  '"name":"twice",',
  ',]',
  "'x'",
  '<',
  '>',
  '[',
  ']',
  ':',
  ',',
  ';',
  '-',
  '"',
  "'",
  '\\',
  '#',
  '\n',
  '0x',
  '1e',
  '.5',
  '99999999999999999999',
  'true',
  'input',
  'dims',
  'key',
  '\uD800',
  'é',
  '\u0000',
  'dynamic_batching {',
  '"\\u',
  'null',
]

function mutate(r: Random, text: string): string {
  let mutant = text
  const edits = 1 + Math.floor(r() * 4)
  for (let i = 0; i < edits; i++) {
    const at = Math.floor(r() * (mutant.length + 1))
    const to = Math.min(mutant.length, at + Math.floor(r() * 12))
    const middle = pick(r, ['', pick(r, PIECES), mutant.slice(at, to).repeat(2)])
    mutant = mutant.slice(0, at) + middle + mutant.slice(r() < 0.5 ? at : to)
  }
  return mutant
}

function onlyConfigErrors(label: string, act: () => unknown): boolean {
  try {
    act()
    return true
  } catch (error) {
    if (!(error instanceof ConfigError)) throw new Error(`${label}: ${String(error)}`, { cause: error })
    return false
  }
}

test.each([
  [
    'text',
    (config: ModelConfig) => toText(ModelConfigSchema, config),
    ADDSUB_CONFIG,
    (text: string) => parsePbtxt(text, 'f'),
  ],
  ['JSON', toTritonJson, toTritonJson(parsePbtxt(ADDSUB_CONFIG, '')), parseJsonConfig],
] as const)(
  'a damaged configuration in %s is read or refused with a ConfigError, and what is read survives',
  (_, print, plain, parse) => {
    const r = random(20)
    const sources = [plain, ...Array.from({ length: 20 }, (_, i) => print(anyConfig(1000 + i)).slice(0, 4000))]
    let read = 0
    for (let i = 0; i < 6000; i++) {
      const text = mutate(r, pick(r, sources))
      if (!onlyConfigErrors(JSON.stringify(text), () => parse(text))) continue
      read++
      const config = parse(text)
      expect(fromBinary(toBinary(config)), text).toEqual(config)
    }
    // Damage that is always or never noticed would test nothing.
    expect(read).toBeGreaterThan(100)
    expect(read).toBeLessThan(5900)
  },
)
