/**
 * A strict reader of expositions, of both formats: what it takes, Prometheus takes. It refuses what scrapers differ
 * about: samples without a type, families in two places, series given twice, names that do not fit their type.
 */

import type { ExpositionFormat } from '../../src/metrics/exposition.js'

export interface Exposition {
  /** Type by family. */
  types: Map<string, string>
  /** Value by series as written: `name{label="value"}`. */
  series: Map<string, string>
}

const SUFFIXES: Record<string, readonly string[]> = {
  counter: [''],
  gauge: [''],
  unknown: [''],
  histogram: ['_bucket', '_count', '_sum'],
  summary: ['', '_count', '_sum'],
}
const NAME = '[a-zA-Z_:][a-zA-Z0-9_:]*'
const LABEL = '[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\\\\n]|\\\\["\\\\n])*"'
const LABELS = `\\{${LABEL}(?:,${LABEL})*\\}`
const SAMPLE = new RegExp(`^(${NAME})(${LABELS})? (\\S+)(?: # (${LABELS}) (\\S+) (\\S+))?$`)
/** Characters of an exemplar's labels. */
const EXEMPLAR_LENGTH_MAX = 128
const VALUE = /^(?:[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|Inf)|Nan)$/

/** Parses a whole exposition, or throws with the invalid line. */
export function parseExposition(text: string, format: ExpositionFormat): Exposition {
  const end = format === 'openmetrics' ? '# EOF\n' : '\n'
  if (!text.endsWith(end)) throw new Error(`does not end in ${JSON.stringify(end)}`)
  const body = format === 'openmetrics' ? text.slice(0, -end.length) : text
  const types = new Map<string, string>()
  const helps = new Set<string>()
  const series = new Map<string, string>()
  let family = ''
  for (const line of body.split('\n').slice(0, -1)) {
    const wrong = (why: string): Error => new Error(`${why}: ${line}`)
    const head = new RegExp(`^# (TYPE|HELP) (${NAME}) (.*)$`).exec(line)
    if (head !== null) {
      const [, kind, name = '', rest = ''] = head
      if (kind === 'HELP') {
        const escapes = format === 'openmetrics' ? /^(?:[^"\\]|\\["\\n])*$/ : /^(?:[^\\]|\\[\\n])*$/
        if (!escapes.test(rest)) throw wrong('escapes')
        if (helps.has(name)) throw wrong('a second HELP')
        helps.add(name)
      } else {
        const known = format === 'openmetrics' || rest !== 'unknown' ? SUFFIXES[rest] : undefined
        if (known === undefined) throw wrong('no such type')
        if (types.has(name)) throw wrong('a family in two places')
        if (rest !== 'counter' && name.endsWith('_total')) throw wrong('only counters end in _total')
        types.set(name, rest)
      }
      family = name
      continue
    }
    const sample = SAMPLE.exec(line)
    if (sample === null) throw wrong('no sample')
    const [, name = '', labels = '', value = '', exemplar, ...observed] = sample
    const type = types.get(family)
    if (type === undefined) throw wrong('no type')
    const suffixes = format === 'openmetrics' && type === 'counter' ? ['_total'] : (SUFFIXES[type] ?? [])
    if (!suffixes.some((suffix) => name === family + suffix)) throw wrong(`not of the family ${family}`)
    if (!VALUE.test(value)) throw wrong('no number')
    if (type === 'counter' && !(Number(value) >= 0)) throw wrong('a counter below 0')
    if (type === 'histogram' && name.endsWith('_bucket') !== labels.includes('le="')) throw wrong('le')
    if (exemplar !== undefined) {
      const bound = Number(/le="([^"]+)"/.exec(labels)?.[1]?.replace('+Inf', 'Infinity'))
      if (format !== 'openmetrics' || type !== 'histogram') throw wrong('an exemplar')
      if (exemplar.length > EXEMPLAR_LENGTH_MAX || !observed.every((one) => VALUE.test(one))) throw wrong('exemplar')
      if (!(Number(observed[0]) <= bound)) throw wrong('an exemplar of another bucket')
    }
    const key = name + labels
    if (series.has(key)) throw wrong('a second sample of one series')
    series.set(key, value)
  }
  for (const name of types.keys()) if (!helps.has(name)) throw new Error(`${name} has no HELP`)
  return { types, series }
}
