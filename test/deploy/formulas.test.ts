/**
 * The formulas of alerts, dashboard and autoscalers, asked of promtool: the alerts by their own tests, the others with
 * a busy model beside nine that get no requests.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, onTestFinished, test } from 'vitest'
import { parse } from 'yaml'
import { ROOT } from '../server/harness.js'

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')
const RULES = join(ROOT, 'docs/deploy/prometheus/rules.yaml')
const isHere = spawnSync('promtool', ['--version']).status === 0

/** Output of `promtool test rules`, without what it says of each file; empty if all is as expected. */
function failuresOf(file: string): string {
  const { status, stdout, stderr } = spawnSync('promtool', ['test', 'rules', file], { encoding: 'utf8' })
  return status === 0 ? '' : `${stdout}${stderr}`
}

function judged(tests: object): string {
  const directory = mkdtempSync(join(tmpdir(), 'nereid-formulas-'))
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }))
  const file = join(directory, 'test.json')
  writeFileSync(file, JSON.stringify(tests))
  return failuresOf(file)
}

const LABELS = 'job="n",instance="i",namespace="models",service="release-nereid-metrics",pod="release-nereid-0"'
/** Samples every 15 s for ten minutes. */
const SAMPLES = 40
const series = (name: string, model: string, step: number, labels = ''): object => ({
  series: `${name}{${LABELS},model="${model}",version="1"${labels}}`,
  values: `0+${step}x${SAMPLES}`,
})
const steady = (name: string, model: string, value: number): object => ({
  series: `${name}{${LABELS},model="${model}",version="1"}`,
  values: `${value}x${SAMPLES}`,
})

/** A model that gets two requests a second, or none. Each waits 0.6 s, runs 0.1 s in batches of two; a tenth fail. */
const load = (model: string, isBusy: boolean): object[] => {
  const requests = isBusy ? 30 : 0
  return [
    series('nv_inference_request_success', model, requests),
    series('nv_inference_count', model, requests),
    series('nv_inference_exec_count', model, requests / 2),
    series('nv_inference_request_failure', model, requests / 9, ',reason="BACKEND"'),
    series('nv_inference_request_duration_us', model, requests * 700_000),
    series('nv_inference_queue_duration_us', model, requests * 600_000),
    series('nv_inference_compute_infer_duration_us', model, requests * 100_000),
    steady('nv_inference_pending_request_count', model, isBusy ? 12 : 0),
    steady('nereid_saturation', model, isBusy ? 1.4 : 0),
  ]
}
const IDLE = Array.from({ length: 9 }, (_, i) => `idle${i}`)

/** Queries of the adapter for a pod, of KEDA, and of the dashboard, by name. */
function queries(): Record<string, string> {
  const found: Record<string, string> = {}
  for (const { seriesQuery, metricsQuery, name } of parse(read('docs/deploy/prometheus/adapter.yaml')).rules.custom) {
    const [first = ''] = /^\w+/.exec(seriesQuery) ?? []
    for (const one of /__name__=~"([^"]+)"/.exec(seriesQuery)?.[1]?.split('|') ?? [first]) {
      found[`adapter ${name?.as ?? one}`] = metricsQuery
        .replaceAll('<<.Series>>', one)
        .replaceAll('<<.LabelMatchers>>', 'namespace="models",pod="release-nereid-0"')
        .replaceAll('<<.GroupBy>>', 'pod')
    }
  }
  const { autoscaling } = parse(read('docs/deploy/helm/nereid/values.yaml'))
  const values: Record<string, string> = {
    '.Values.autoscaling.metric': autoscaling.metric,
    '.Release.Namespace': 'models',
    'include "nereid.fullname" .': 'release-nereid',
  }
  found['KEDA'] = autoscaling.query.replaceAll(/\{\{ (.*?) \}\}/g, (_: string, name: string) => values[name])
  for (const { title, targets = [] } of JSON.parse(read('docs/deploy/grafana/dashboard.json')).panels)
    for (const { expr, legendFormat } of targets)
      found[`dashboard ${title} ${legendFormat}`] = expr
        .replaceAll(/\$(?:job|instance|model)\b/g, '.*')
        .replaceAll('$__rate_interval', '1m')
  return found
}

describe.skipIf(!isHere)('promtool (skipped without it: apt-get install prometheus)', () => {
  // O-57
  test('the rules have no mistake, and each alert fires when it should and not otherwise', () => {
    expect(spawnSync('promtool', ['check', 'rules', RULES]).status).toBe(0)
    expect(failuresOf(join(ROOT, 'test/heavy/prometheus/rules.test.yaml'))).toBe('')
  })

  const POD = '{pod="release-nereid-0"}'
  const cases: [query: string, labels: string, busy: number, idle: number | null][] = [
    ['adapter avg_time_queue_us', POD, 600_000, 0],
    ['adapter nereid_saturation', POD, 1.4, 0],
    ['adapter nv_inference_pending_request_count', POD, 12, 0],
    ['KEDA', '{}', 1.4, 0],
    ['dashboard Where the time goes queue', '{}', 600_000, null],
    ['dashboard Where the time goes compute_infer', '{}', 100_000, null],
  ]
  test.each(cases)('%s is that of the busy model beside nine idle ones', (name, labels, busy, idle) => {
    const expr = queries()[name]
    const judge = (models: object[], value: number | null): string =>
      judged({
        evaluation_interval: '15s',
        tests: [
          {
            interval: '15s',
            input_series: models,
            promql_expr_test: [{ expr, eval_time: '8m', exp_samples: value === null ? [] : [{ labels, value }] }],
          },
        ],
      })
    const others = IDLE.flatMap((model) => load(model, false))
    expect(judge([...others, ...load('busy', true)], busy)).toBe('')
    expect(judge([...others, ...load('busy', true)], busy / 10)).toContain('FAILED')
    if (idle !== null) expect(judge(others, idle)).toBe('')
  })

  test.each([
    ['Mean time of a request {{model}}', 700_000],
    ['Rows of a batch {{model}}', 2],
    ['Waiting {{model}}', 12],
  ])('dashboard %s is told by model', (name, value) => {
    const expr = `(${queries()[`dashboard ${name}`]}) > 0`
    const models = [...IDLE.flatMap((model) => load(model, false)), ...load('busy', true)]
    const samples = [{ labels: '{model="busy"}', value }]
    const of = { expr, eval_time: '8m', exp_samples: samples }
    expect(judged({ tests: [{ interval: '15s', input_series: models, promql_expr_test: [of] }] })).toBe('')
  })

  test('one request in half a minute is told with its own wait', () => {
    const one = (name: string, value: number): object => ({
      series: `${name}{${LABELS},model="m",version="1"}`,
      values: `0x30 ${value}x10`,
    })
    const expr = queries()['adapter avg_time_queue_us']
    const [success, queue] = ['nv_inference_request_success', 'nv_inference_queue_duration_us']
    const samples = [{ labels: POD, value: 600_000 }]
    expect(
      judged({
        evaluation_interval: '15s',
        tests: [
          {
            interval: '15s',
            input_series: [one(success, 1), one(queue, 600_000)],
            promql_expr_test: [{ expr, eval_time: '7m45s', exp_samples: samples }],
          },
        ],
      }),
    ).toBe('')
  })

  test('the alerts of a model fire for the busy one only', () => {
    const alert = (alertname: string, exp: object[]): object => ({ eval_time: '20m', alertname, exp_alerts: exp })
    const models = [...IDLE.flatMap((model) => load(model, false)), ...load('busy', true)].map((one) =>
      JSON.parse(JSON.stringify(one).replace(`x${SAMPLES}`, 'x100')),
    )
    const exp_labels = { severity: 'warning', job: 'n', model: 'busy' }
    const REASONS =
      'nv_inference_request_failure has the reasons. REJECTED is a full queue, BACKEND an error of the model.'
    const wait =
      'They wait for an instance, 600k µs each. More instances, larger batches or more replicas shorten that.'
    expect(
      judged({
        rule_files: [RULES],
        evaluation_interval: '15s',
        tests: [
          {
            interval: '15s',
            input_series: models,
            alert_rule_test: [
              alert('NereidQueueLong', [
                {
                  exp_labels,
                  exp_annotations: { summary: 'Requests of busy wait for half a second and more', description: wait },
                },
              ]),
              alert('NereidRequestsFail', [
                {
                  exp_labels,
                  exp_annotations: {
                    summary: '10% of the requests of busy fail',
                    description: REASONS,
                  },
                },
              ]),
            ],
          },
        ],
      }),
    ).toBe('')
  })
})
