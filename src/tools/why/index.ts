/**
 * `nereid why`: explains a request, a model or a server. It asks the server, or reads the record that a response has in
 * its header `nereid-why`.
 *
 * Exit code 0 if there is an explanation, 1 if the server gives none, 2 for wrong arguments.
 */

import { CommandError, ask, commandNamed, membersOf, printable, readArguments, remoteOf } from '../../internal.js'
import { readStdin } from '../stdin.js'
import { recordText } from './record.js'
import { modelText, serverText } from './summary.js'

const DEFAULT_URL = 'http://localhost:8000'
/** Some thousand records of at most 2 KiB. */
const STDIN_CHARACTERS_MAX = 8 << 20

export async function run(program: string, args: readonly string[]): Promise<number> {
  let explain: () => Promise<Explanation>
  let isJson: boolean
  try {
    const { rest, options } = readArguments(commandNamed('why'), args)
    isJson = options.has('json')
    explain = explanationOf(rest, options)
  } catch (error) {
    if (!(error instanceof CommandError)) throw error
    process.stderr.write(`${error.message}; see ${program} help why\n`)
    return 2
  }
  try {
    const { value, lines } = await explain()
    process.stdout.write(isJson ? `${JSON.stringify(value, null, 2)}\n` : `${lines.map(printable).join('\n')}\n`)
    return 0
  } catch (error) {
    if (!(error instanceof CommandError)) throw error
    process.stderr.write(`${error.message}\n`)
    return 1
  }
}

async function fromStdin(): Promise<string> {
  const text = await readStdin(STDIN_CHARACTERS_MAX)
  if (text.length > STDIN_CHARACTERS_MAX)
    throw new CommandError(`standard input has more than ${STDIN_CHARACTERS_MAX} characters; send fewer records`)
  return text
}

interface Explanation {
  value: unknown
  lines: string[]
}

/** Reads the arguments; the returned function asks the server. */
function explanationOf(rest: readonly string[], options: ReadonlyMap<string, string>): () => Promise<Explanation> {
  const [what, ...more] = rest
  const given = (name: string) => options.get(name)
  const [id, version, simulate] = [given('id'), given('version'), given('simulate')]
  if (more.length > 0) throw new CommandError(`why explains one model or one record, not '${rest.join("' and '")}'`)
  if (what === '-' || what?.trimStart().startsWith('{') === true) {
    const wrong = [...options.keys()].find((name) => name !== 'json')
    if (wrong !== undefined) throw new CommandError(`why reads the record itself; --${wrong} is for a server`)
    return async () => explainRecords(recordsIn(what === '-' ? await fromStdin() : what))
  }
  const remote = remoteOf(given('url') ?? DEFAULT_URL, given('header') ?? null)
  if (id !== undefined) {
    const model = what === undefined ? '' : `&model=${encodeURIComponent(what)}`
    return async () => {
      const value = await ask(remote, `/v2/why?id=${encodeURIComponent(id)}${model}`, { advise })
      const { requests } = membersOf(value)
      return { ...explainRecords(Array.isArray(requests) ? requests : []), value }
    }
  }
  if (what === undefined) {
    for (const [name, value] of Object.entries({ version, simulate }))
      if (value !== undefined) throw new CommandError(`--${name} needs a model: why MODEL --${name}=${value}`)
    return async () => {
      const value = await ask(remote, '/v2/why', { advise })
      return { value, lines: serverText(value) }
    }
  }
  const changes = simulate === undefined ? '' : `?simulate=${changesOf(simulate)}`
  const place = version === undefined ? '' : `/versions/${encodeURIComponent(version)}`
  return async () => {
    const path = `/v2/models/${encodeURIComponent(what)}${place}/why${changes}`
    const value = await ask(remote, path, { advise })
    return { value, lines: modelText(value, simulate) }
  }
}

/** `instances=2,delay_us=100` as the server takes it. */
function changesOf(text: string): string {
  const changes = text.split(',').map((part) => {
    const [, name, value] = /^([a-z_]+)[=:](\d+)$/.exec(part.trim()) ?? []
    if (name === undefined)
      throw new CommandError(`--simulate is NAME=NUMBER,…, such as instances=2,delay_us=100; got '${part}'`)
    return `${name}:${value}`
  })
  return encodeURIComponent(changes.join(','))
}

/** Text of a server for a path that it does not know. */
const UNKNOWN_PATH = 'Not Found'

function advise(status: number, error: string | null): string {
  if (status === 401 || status === 403) return '; it needs a key with the permission of statistics'
  if (error !== null && error !== UNKNOWN_PATH) return ''
  return '; this server does not explain requests, as Triton and older releases of Nereid do not'
}

/**
 * Records in a text: `nereid-why: {…}` among the headers that curl prints, or JSON, alone or one in each line.
 *
 * @throws {CommandError} if there is none
 */
function recordsIn(source: string): unknown[] {
  const parse = (json: string): unknown[] => {
    try {
      const value: unknown = JSON.parse(json)
      const { requests } = membersOf(value)
      return Array.isArray(requests) ? requests : [value]
    } catch {
      return []
    }
  }
  const lines = source.split(/\r?\n/).map((line) => line.replace(/^\s*(?:<\s*)?nereid-why:\s*/i, ''))
  const found = [parse(source), lines.filter((line) => line.startsWith('{')).flatMap(parse)]
  const records = found.map((all) => all.filter((one) => membersOf(one)['total_us'] !== undefined))
  const some = records.find((all) => all.length > 0)
  if (some === undefined)
    throw new CommandError(
      `there is no record in these ${source.length} characters; a request with the header 'nereid-why: 1' gets ` +
        "one in the header 'nereid-why' of its response, which curl -D- prints",
    )
  return some
}

function explainRecords(records: readonly unknown[]): Explanation {
  const lines = records.flatMap((record, i) => (i === 0 ? recordText(record) : ['', ...recordText(record)]))
  return { value: records.length === 1 ? records[0] : records, lines }
}
