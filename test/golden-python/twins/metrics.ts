/** Snippets that make metrics. */

import { setTimeout } from 'node:timers/promises'
import type { Metric, MetricFamily } from 'nereid/backend'
import type { Scope, Snippet } from './scope.ts'

const family = ({ keep }: Scope, name: string) => keep[name] as MetricFamily
const metric = ({ keep }: Scope, name: string) => keep[name] as Metric

/** Makes a metric of the family `of` with these labels, and returns its value. */
const made =
  (name: string, of: string, labels?: Record<string, string>): Snippet =>
  (scope) => {
    const one = family(scope, of).labels(labels)
    scope.keep[name] = one
    return one.value()
  }

export const metrics: Record<string, Snippet> = {
  'metric.family.counter': ({ ctx, keep }) => {
    keep['fc'] = ctx.metrics.counter('golden_c', 'text')
    return { object: 'MetricFamily' }
  },
  'metric.family.gauge': ({ ctx, keep }) => {
    keep['fg'] = ctx.metrics.gauge('golden_g', 'text')
    return 1
  },
  'metric.family.histogram': ({ ctx, keep }) => {
    keep['fh'] = ctx.metrics.histogram('golden_h', 'text', [0.1, 1, 10])
    return 1
  },
  'metric.c.new': async (scope) => [await made('c', 'fc', { a: '1' })(scope), 'Metric'],
  'metric.c.inc': (scope) => {
    metric(scope, 'c').inc(2.5)
    metric(scope, 'c').inc()
    return metric(scope, 'c').value()
  },
  'metric.c.inc0': (scope) => {
    metric(scope, 'c').inc(0)
    return metric(scope, 'c').value()
  },
  'metric.c.neg': (scope) => metric(scope, 'c').inc(-1),
  'metric.c.set': (scope) => metric(scope, 'c').set(5),
  'metric.c.observe': (scope) => metric(scope, 'c').observe(5),
  'metric.c.inc.nan': async (scope) => {
    await made('c2', 'fc', { a: 'nan' })(scope)
    metric(scope, 'c2').inc(Number.NaN)
    return metric(scope, 'c2').value()
  },
  'metric.c.inc.np': (scope) => {
    metric(scope, 'c').inc(1)
    return metric(scope, 'c').value()
  },
  'metric.c.inc.bool': (scope) => {
    metric(scope, 'c').inc(1)
    return metric(scope, 'c').value()
  },
  'metric.c.same.labels': async (scope) => {
    const same = family(scope, 'fc').labels({ a: '1' })
    same.inc(10)
    return [await metric(scope, 'c').value(), await same.value()]
  },
  'metric.g.new': made('g', 'fg', {}),
  'metric.g.ops': async (scope) => {
    const gauge = metric(scope, 'g')
    gauge.set(5)
    gauge.inc(-7.5)
    const before = await gauge.value()
    gauge.set(1.25)
    return [before, await gauge.value()]
  },
  'metric.g.nolabels': async (scope) => {
    const same = family(scope, 'fg').labels()
    same.set(3)
    return [await metric(scope, 'g').value(), await same.value()]
  },
  'metric.g.positional': (scope) => {
    const one = family(scope, 'fg').labels({ x: 'y' })
    one.set(-1)
    return one.value()
  },
  'metric.h.set': (scope) => metric(scope, 'h').set(1),
  'metric.h.inc': (scope) => metric(scope, 'h').inc(1),
  'metric.h.value': (scope) => metric(scope, 'h').value(),
  'metric.h.new': (scope) => {
    scope.keep['h'] = family(scope, 'fh').labels({ a: 'b' })
    return 1
  },
  'metric.h.observe': (scope) => {
    for (const value of [0.05, 0.1, 0.5, 5, 50]) metric(scope, 'h').observe(value)
    return 1
  },
  'metric.new.labels.none': made('none', 'fc'),
  'metric.new.labels.empty.value': made('e', 'fc', { e: '' }),
  'metric.new.labels.quote': made('q', 'fc', { q: 'a"b\\c' }),
  'metric.new.labels.unicode': made('u', 'fc', { u: '\u4e2d' }),
  'metric.family.lives': ({ ctx, keep }) => {
    keep['f.life'] = ctx.metrics.gauge('golden_life', 'd')
    const one = (keep['f.life'] as MetricFamily).labels({ l: '1' })
    one.set(4)
    return 1
  },
  'metric.metric.again': made('m.life', 'f.life', { l: '1' }),
  'metric.fam.same.kind': ({ ctx }) => ctx.metrics.gauge('golden_c', 'text').labels({ t: 'same.kind' }).value(),
  'metric.async': async ({ ctx }) => {
    const gauge = ctx.metrics.gauge('golden_async', 'd').labels()
    gauge.set(2)
    await setTimeout(0)
    gauge.inc(3)
    return gauge.value()
  },
  'metric.fam.desc.empty': counted('golden_x2', '', 'desc.empty'),
  'metric.fam.kind.c': counted('golden_x7', 'd', 'kind.c'),
  'metric.fam.positional': ({ ctx }) => {
    const one = ctx.metrics.gauge('golden_x6', 'd').labels({ t: 'positional' })
    one.inc(1)
    return one.value()
  },
  'metric.fam.same': counted('golden_c', 'text', 'same'),
  'metric.fam.same.desc': counted('golden_c', 'other text', 'same.desc'),
  'metric.fam.name.digit': counted('1golden', 'd', 'name.digit'),
  'metric.two.families.one.deleted': ({ ctx }) => {
    ctx.metrics.gauge('golden_two', 'd')
    const one = ctx.metrics.gauge('golden_two', 'd').labels({ k: 'v' })
    one.set(3)
    return one.value()
  },
}

/** Makes a counter, adds 1 and returns its value. */
function counted(name: string, help: string, label: string): Snippet {
  return ({ ctx }) => {
    const one = ctx.metrics.counter(name, help).labels({ t: label })
    one.inc(1)
    return one.value()
  }
}
