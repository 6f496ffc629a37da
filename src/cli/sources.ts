/**
 * Reads options from the command line, from variables `NEREID_<FLAG>`, and from the file that `--config` names. An
 * earlier source overrides a later one; a list is taken whole from the first source that has the option. Everything
 * follows from the flags table. The environment is not changed, so processes that the server starts inherit it.
 */

import { ConfigError } from '../config/error.js'
import { readRegularFile } from '../config/files.js'
import { cleanCell } from '../log/format.js'
import { FLAGS, type Flag } from './flags.js'
import { OptionError, assign, badOption, parseArguments, readValue, suggestion, type Parsed } from './parse.js'

const TABLE: readonly Flag[] = FLAGS
const PREFIX = 'NEREID_'
/** Every option with a sentence about it takes 20 KiB. */
export const FILE_BYTES_MAX = 64 * 1024
/** Brackets and nested list signs in a file. An options file has a few, and the library's parser recurses for each. */
const BRACKETS_MAX = 1000
const NESTED = /(?:[-?:][ \t]+){100}/

/** Replaces texts of the library that are meant for programmers or lack advice. */
const WORDS: Readonly<Record<string, string>> = {
  MULTIPLE_DOCS: 'a second document begins here; a file of options must be a single document',
  // Values such as the address :: cause it.
  BLOCK_AS_IMPLICIT_KEY: 'Nested mappings are not allowed in compact mappings; a value with a colon may need quotes',
}

/** Value of one flag in a variable or in a line of a file. */
interface SourceValue {
  flag: Flag
  values: (string | number | boolean)[]
  origin: string
}

/**
 * The options in effect.
 *
 * @param operands as for `parseArguments`; any of them replaces a --model-repository that the command line lacks
 * @throws {OptionError} naming the variable, or the file and the line
 */
export async function readOptions(
  args: readonly string[],
  environment: NodeJS.ProcessEnv,
  operands: string[] | null = null,
): Promise<Parsed> {
  const parsed = parseArguments(args, operands)
  if (parsed.options.help || parsed.options.version) return parsed
  const isNamed = operands !== null && operands.length > 0
  const take = (all: readonly SourceValue[]): void => {
    for (const { flag, values, origin } of all) {
      if (parsed.given.has(flag.name) || (isNamed && flag.name === 'model-repository')) continue
      for (const value of values) assign(parsed, flag, value, origin)
    }
  }
  take(fromEnvironment(environment, parsed.warnings))
  const { config } = parsed.options
  if (config !== '') take(await fromFile(config, parsed.given.get('config') ?? ''))
  return parsed
}

/** The variables of a flag, that of its current name first. */
export function variablesOf(flag: Flag): string[] {
  if (flag.outside === 'nowhere') return []
  return [flag.name, ...(flag.aliases ?? [])].map((name) => `${PREFIX}${name.toUpperCase().replaceAll('-', '_')}`)
}

function fromEnvironment(environment: NodeJS.ProcessEnv, warnings: string[]): SourceValue[] {
  const values: SourceValue[] = []
  const known = new Set<string>()
  for (const flag of TABLE) {
    const names = variablesOf(flag)
    for (const name of names) known.add(name)
    // An empty variable counts as unset: compose files write unset values so.
    const origin = names.find((name) => (environment[name] ?? '') !== '')
    const text = origin === undefined ? '' : (environment[origin] ?? '')
    if (origin === undefined) continue
    if (isLink(text)) {
      const service = origin
        .replace(/_PORT$/, '')
        .toLowerCase()
        .replaceAll('_', '-')
      warnings.push(
        `Warning: ${origin} is ignored: it is ${cleanCell(text)}, as Kubernetes sets it for a Service named ` +
          `${service} (enableServiceLinks: false in the pod leaves it out)`,
      )
      continue
    }
    const texts = flag.list === true ? text.split(/\r?\n/).filter((line) => line !== '') : [text]
    values.push({ flag, values: texts.map((one) => at(origin, () => readValue(flag, one))), origin })
  }
  for (const [name, text = ''] of Object.entries(environment)) {
    if (!name.startsWith(PREFIX) || known.has(name) || isLink(text) || /_SERVICE_(?:HOST|PORT)|_PORT_\d+_/.test(name))
      continue
    const meant = suggestion(
      name.slice(PREFIX.length),
      [...known].map((one) => one.slice(PREFIX.length)),
      PREFIX,
    )
    if (meant !== '') warnings.push(`Warning: nothing reads ${cleanCell(name)}${meant}`)
  }
  return values
}

/** True for the value that Kubernetes puts into `<SERVICE>_PORT`. */
const isLink = (text: string): boolean => /^(?:tcp|udp|sctp):\/\//i.test(text)

async function fromFile(path: string, namedBy: string): Promise<SourceValue[]> {
  const text = at(namedBy.startsWith(PREFIX) ? namedBy : null, () => textOf(path))
  const shown = cleanCell(path)
  const library = await import('yaml')
  const lines = new library.LineCounter()
  const wrong = (offset: number, why: string): OptionError =>
    new OptionError(`${shown}:${lines.linePos(offset).line}: ${cleanCell(why)}`)
  const tooDeep = `${shown}: is nested too deep`
  if ((text.match(/[[{]/g)?.length ?? 0) > BRACKETS_MAX || NESTED.test(text)) throw new OptionError(tooDeep)
  let document: ReturnType<typeof library.parseDocument>
  try {
    // Unique keys are checked below, in linear time: the library compares each with each. With logLevel 'silent' it
    // would ignore a second document, and positions in messages take longer than all the rest.
    document = library.parseDocument(text, {
      lineCounter: lines,
      logLevel: 'error',
      uniqueKeys: false,
      prettyErrors: false,
    })
  } catch (error) {
    if (error instanceof RangeError) throw new OptionError(tooDeep)
    throw error
  }
  const [mistake] = [...document.errors, ...document.warnings]
  if (mistake !== undefined) throw wrong(mistake.pos[0], WORDS[mistake.code] ?? mistake.message.split('\n')[0] ?? '')
  const { contents } = document
  if (contents === null || (library.isScalar(contents) && contents.value === null)) return []
  if (!library.isMap(contents))
    throw wrong(contents.range?.[0] ?? 0, 'a file of options must have lines such as http-port: 8000')

  /** A scalar as it would be written on the command line; `where` is the fallback position. */
  const scalar = (node: unknown, where: number, name: string): { text: string; at: number } => {
    const start = library.isNode(node) ? (node.range?.[0] ?? where) : where
    if (library.isAlias(node)) throw wrong(start, `${name}: write the value itself, aliases (*) are not followed`)
    if (library.isMap(node) || library.isSeq(node))
      throw wrong(start, `${name}: a single value belongs here, not a ${library.isMap(node) ? 'map' : 'list'}`)
    if (library.isNode(node) && node.tag !== undefined) throw wrong(start, `${name}: write the value without a tag (!)`)
    if (!library.isScalar(node) || node.value === null) throw wrong(start, `${name}: has no value`)
    const value = typeof node.value === 'string' ? node.value : (node.source ?? String(node.value))
    if (value.includes('\0')) throw wrong(start, `${name}: has a NUL byte`)
    return { text: value, at: start }
  }
  const names = TABLE.filter((flag) => flag.outside === undefined).flatMap((flag) => [
    flag.name,
    ...(flag.aliases ?? []),
  ])
  const lineOf = new Map<string, number>()
  return contents.items.map(({ key, value }) => {
    const start = library.isNode(key) ? (key.range?.[0] ?? 0) : 0
    const name = library.isScalar(key) ? String(key.value) : ''
    const flag = TABLE.find(
      (one) => one.outside === undefined && (one.name === name || one.aliases?.includes(name) === true),
    )
    if (flag === undefined) {
      const elsewhere = TABLE.some((one) => one.name === name) ? '; a file cannot set it' : suggestion(name, names)
      throw wrong(start, `unrecognized option '${name.slice(0, 100)}'${elsewhere}`)
    }
    const before = lineOf.get(flag.name)
    if (before !== undefined) throw wrong(start, `${name}: is already set in line ${before}`)
    const { line } = lines.linePos(start)
    lineOf.set(flag.name, line)
    const texts =
      flag.list === true && library.isSeq(value)
        ? value.items.map((item) => scalar(item, start, name))
        : [scalar(value, start, name)]
    return {
      flag,
      values: texts.map((one) => at(`${shown}:${lines.linePos(one.at).line}`, () => readValue(flag, one.text))),
      origin: `${shown}:${line}`,
    }
  })
}

function textOf(path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(
      readRegularFile(path, FILE_BYTES_MAX, `${path} is too large for a file of options`),
    )
  } catch (error) {
    if (error instanceof ConfigError) throw badOption('config', error.message)
    if (error instanceof TypeError) throw badOption('config', `${path} is not text in UTF-8`)
    throw error
  }
}

/** Prefixes an error with the origin; null is the command line, which needs no prefix. */
function at<T>(origin: string | null, read: () => T): T {
  try {
    return read()
  } catch (error) {
    if (!(error instanceof OptionError) || origin === null) throw error
    throw new OptionError(`${origin}: ${error.message}`, error.flag)
  }
}
