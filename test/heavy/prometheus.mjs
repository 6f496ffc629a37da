/**
 * The alerts, the dashboard and the queries of autoscalers in docs/deploy, with a real Prometheus: promtool checks and
 * tests the alerts, and a server scrapes a Nereid whose models get requests, is asked every expression, and must answer
 * each with numbers. Those that only a GPU has are told as absent.
 */
import { spawn } from 'node:child_process'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parse } from 'yaml'
import { freePorts, listenFlags } from '../../scripts/lib/ports.mjs'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'
import { commandsOf, typed } from './lib/page.mjs'
import { prometheusMissing, prometheusPrograms } from './lib/tools.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'prometheus')
const DEPLOY = join(ROOT, 'docs', 'deploy')
const MAIN = join(ROOT, 'dist', 'cli', 'main.js')
const RULES = join(DEPLOY, 'prometheus', 'rules.yaml')
const RULE_TESTS = join(ROOT, 'test', 'heavy', 'prometheus', 'rules.test.yaml')
/** Metrics that a machine without a GPU does not have. */
const OF_GPUS = /\bnv_(?:gpu|energy)_\w+/
/** Labels that Kubernetes' discovery adds to each sample. */
const LABELS = { namespace: 'models', service: 'release-nereid-metrics', pod: 'release-nereid-0' }
const ANSWER_MS_MAX = 60_000

async function missing() {
  return [prometheusMissing()].filter((line) => line !== null)
}

/** A model whose answers are kept, and one in Python: families of metrics that others do not have. */
function writeModels(directory) {
  rmSync(directory, { recursive: true, force: true })
  const tensor = (name) => `[ { name: "${name}" data_type: TYPE_FP32 dims: [ 2 ] } ]`
  const io = `max_batch_size: 8\ninput ${tensor('IN')}\noutput ${tensor('OUT')}\n`
  const models = {
    kept: `backend: "python"\n${io}response_cache { enable: true }\n`,
    running: `backend: "python"\n${io}`,
  }
  const code =
    'import triton_python_backend_utils as pb_utils\n\n\nclass TritonPythonModel:\n    def execute(self, ' +
    'requests):\n        one = lambda r: pb_utils.get_input_tensor_by_name(r, "IN").as_numpy()\n' +
    '        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", one(r))]) for r in requests]\n'
  for (const [name, config] of Object.entries(models)) {
    mkdirSync(join(directory, name, '1'), { recursive: true })
    writeFileSync(join(directory, name, 'config.pbtxt'), config)
    writeFileSync(join(directory, name, '1', 'model.py'), code)
  }
  return Object.keys(models)
}

/** Starts a program, and ends it when `use` is over. */
async function beside(command, args, use) {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  let log = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk) => (log = (log + chunk).slice(-4000)))
  const ended = new Promise((resolve) => child.on('close', resolve))
  try {
    return await use({ alive: () => must(child.exitCode === null && child.signalCode === null, `it ended: ${log}`) })
  } finally {
    child.kill('SIGINT')
    const timer = setTimeout(() => child.kill('SIGKILL'), 20_000)
    await ended
    clearTimeout(timer)
  }
}

async function until(what, alive, good) {
  for (const from = Date.now(); ; await sleep(200)) {
    const value = await good()
    if (value) return value
    alive()
    must(Date.now() - from < ANSWER_MS_MAX, `${what}: not within ${ANSWER_MS_MAX / 1000} s`)
  }
}

/** `{ title, expr }` of a dashboard, as Grafana asks them with everything chosen. */
function expressionsOf(dashboard) {
  const chosen = (expr) => expr.replaceAll(/\$(?:job|instance|model)\b/g, '.*').replaceAll('$__rate_interval', '10s')
  return dashboard.panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr, legendFormat }) => ({
      title: targets.length > 1 ? `${title}, ${legendFormat.replaceAll(/\{\{\w+\}\} ?/g, '').trim() || 'each'}` : title,
      expr: chosen(expr),
    })),
  )
}

/** Queries of autoscalers, from the values of the chart and the adapter. */
function scalers() {
  const { autoscaling } = parse(readFileSync(join(DEPLOY, 'helm/nereid/values.yaml'), 'utf8'))
  const known = {
    '.Values.autoscaling.metric': autoscaling.metric,
    '.Release.Namespace': LABELS.namespace,
    'include "nereid.fullname" .': LABELS.service.replace('-metrics', ''),
  }
  const keda = autoscaling.query.replaceAll(/\{\{ (.*?) \}\}/g, (_, name) => known[name])
  return [{ title: "KEDA's query", expr: keda }, ...adapterQueries()]
}

/** Queries of the adapter: for each rule and each series that it finds, as the adapter asks for the metric of a pod. */
function adapterQueries() {
  const { custom } = parse(readFileSync(join(DEPLOY, 'prometheus/adapter.yaml'), 'utf8')).rules
  return custom.flatMap(({ seriesQuery, metricsQuery, name }) => {
    // The braces may have the names of several series.
    const names = /__name__=~"([^"]+)"/.exec(seriesQuery)?.[1].split('|') ?? [/^\w+/.exec(seriesQuery)[0]]
    return names.map((series) => ({
      title: `the adapter's ${name?.as ?? series}`,
      series: seriesQuery,
      expr: metricsQuery
        .replaceAll('<<.Series>>', series)
        .replaceAll('<<.LabelMatchers>>', `namespace="${LABELS.namespace}",pod=~"${LABELS.pod}"`)
        .replaceAll('<<.GroupBy>>', 'pod'),
    }))
  })
}

async function run(checks) {
  mkdirSync(HERE, { recursive: true })
  const programs = await checks.step('Prometheus and promtool are there', prometheusPrograms)
  if (programs === undefined) return 'absent: Prometheus'
  const version = /version (\S+)/.exec(ask(programs.promtool, ['--version']) ?? '')?.[1]
  process.stdout.write(`ran    Prometheus ${version}\n`)
  const promtool = (...args) => capture(programs.promtool, args, { quiet: true })

  await checks.step('promtool check rules', async () => {
    const { code, text } = await promtool('check', 'rules', RULES)
    must(code === 0, text.trim())
  })
  await checks.step('the commands of docs/deploy/README.md', () =>
    typed(commandsOf('docs/deploy/README.md', 'promtool'), programs.promtool, join(HERE, 'typed')),
  )
  await checks.step('promtool test rules: each alert fires when it should, and not otherwise', async () => {
    const { code, text } = await promtool('test', 'rules', RULE_TESTS)
    must(code === 0, text.trim())
    const tested = new Set([...readFileSync(RULE_TESTS, 'utf8').matchAll(/alertname: (\w+)/g)].map(([, name]) => name))
    const alerts = parse(readFileSync(RULES, 'utf8')).groups.flatMap(({ rules }) => rules.map(({ alert }) => alert))
    const rest = alerts.filter((name) => !tested.has(name))
    must(rest.length === 0, `no test of ${rest.join(', ')}`)
  })
  await checks.step('the tests of alerts see another threshold', async () => {
    writeFileSync(join(HERE, 'rules.yaml'), readFileSync(RULES, 'utf8').replace('> 500000', '> 50000'))
    writeFileSync(
      join(HERE, 'rules.test.yaml'),
      readFileSync(RULE_TESTS, 'utf8').replace(/rule_files: .*/, 'rule_files: [rules.yaml]'),
    )
    const { code, text } = await promtool('test', 'rules', join(HERE, 'rules.test.yaml'))
    must(code !== 0 && text.includes('NereidQueueLong'), text.trim())
  })

  await pythonEnvironment()
  const names = writeModels(join(HERE, 'models'))
  const [prometheusPort, ...ports] = await freePorts(4)
  const flags = [
    `--model-repository=${join(HERE, 'models')}`,
    ...listenFlags(ports),
    '--cache-config=local,size=1048576',
    `--backend-config=python,python-executable=${PYTHON}`,
  ]
  const job = { job_name: 'nereid', static_configs: [{ targets: [`127.0.0.1:${ports[2]}`], labels: LABELS }] }
  // JSON is YAML.
  writeFileSync(
    join(HERE, 'prometheus.yml'),
    JSON.stringify({
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: [RULES],
      scrape_configs: [job],
    }),
  )
  rmSync(join(HERE, 'data'), { recursive: true, force: true })
  const api = `http://127.0.0.1:${prometheusPort}`
  const json = (path) =>
    fetch(`${api}${path}`).then(
      (answer) => answer.json(),
      () => null,
    )
  let answered = 0
  const absent = []

  await beside(process.execPath, [MAIN, ...flags], async (server) => {
    await until('the server is ready', server.alive, () =>
      fetch(`http://127.0.0.1:${ports[0]}/v2/health/ready`).then(
        ({ ok }) => ok,
        () => false,
      ),
    )
    const args = [
      `--config.file=${join(HERE, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(HERE, 'data')}`,
      `--web.listen-address=127.0.0.1:${prometheusPort}`,
    ]
    await beside(programs.prometheus, args, async ({ alive }) => {
      await until('Prometheus is ready', alive, () =>
        fetch(`${api}/-/ready`).then(
          ({ ok }) => ok,
          () => false,
        ),
      )
      const over = new AbortController()
      const traffic = (async () => {
        for (let i = 0; !over.signal.aborted; i += 1) {
          const body = JSON.stringify({ inputs: [{ name: 'IN', shape: [1, 2], datatype: 'FP32', data: [i % 3, 1] }] })
          for (const name of names) {
            const { status } = await fetch(`http://127.0.0.1:${ports[0]}/v2/models/${name}/infer`, {
              method: 'POST',
              body,
            })
            must(status === 200, `${name} answers ${status}`)
          }
          await sleep(100)
        }
      })()
      // Its failure is that of a step, below.
      traffic.catch(() => {})
      /** True when a series of the answer is a number. */
      const hasNumbers = async (expr) => {
        const answer = await json(`/api/v1/query?query=${encodeURIComponent(expr)}`)
        if (answer === null) return false
        must(answer.status === 'success', `${expr}: ${answer.error}`)
        return answer.data.result.some(({ value: [, number] }) => Number.isFinite(Number(number)))
      }
      const dashboard = JSON.parse(readFileSync(join(DEPLOY, 'grafana/dashboard.json'), 'utf8'))
      for (const { title, expr } of [...expressionsOf(dashboard), ...scalers()]) {
        if (OF_GPUS.test(expr)) {
          process.stdout.write(`absent ${title}: has data with a GPU only\n`)
          absent.push(title)
          // Prometheus reads it all the same.
          await checks.step(`${title}: a query`, () => hasNumbers(expr))
          continue
        }
        await checks.step(`${title}: has data`, () => until(expr, alive, () => hasNumbers(expr)))
        answered += 1
      }
      for (const { title, series, expr } of adapterQueries()) {
        await checks.step(`${title}: its series are found, and the value is that of the pod`, async () => {
          const found = await json(`/api/v1/series?match[]=${encodeURIComponent(series)}`)
          must(found.data.length > 0, `no series ${series}`)
          const { data } = await json(`/api/v1/query?query=${encodeURIComponent(expr)}`)
          const [{ metric, value } = {}] = data.result
          must(
            data.result.length === 1 && metric.pod === LABELS.pod && Number(value[1]) >= 0,
            JSON.stringify(data.result),
          )
        })
      }
      await checks.step('the average time in the queue is that of the server', async () => {
        const { expr } = adapterQueries().find(({ title }) => title.endsWith('avg_time_queue_us'))
        const own = 'sum(nv_inference_queue_duration_us) / sum(nv_inference_request_success)'
        const [adapter, server] = await Promise.all(
          [expr, own].map(async (query) => {
            const { data } = await json(`/api/v1/query?query=${encodeURIComponent(query)}`)
            return Number(data.result[0].value[1])
          }),
        )
        // The first covers the last seconds, the second all of them, and the traffic is even.
        must(
          adapter > 0 && adapter > server / 10 && adapter < server * 10,
          `${adapter} µs, and the server says ${server}`,
        )
        process.stdout.write(`       ${adapter.toFixed(1)} µs in 30 s, ${server.toFixed(1)} µs in all\n`)
      })
      await checks.step('the choices of the dashboard have values', async () => {
        for (const { name, definition } of dashboard.templating.list.filter(({ type }) => type === 'query')) {
          const [, series, label] = /^label_values\((.*), (\w+)\)$/.exec(definition)
          const query = `group by (${label}) (${series.replaceAll('$job', '.*')})`
          const { data } = await json(`/api/v1/query?query=${encodeURIComponent(query)}`)
          must(
            data.result.length > 0 && data.result.every(({ metric }) => metric[label]),
            `${name}: ${JSON.stringify(data)}`,
          )
        }
      })
      await checks.step('Prometheus evaluates the alerts, and none fires', async () => {
        const rules = await until('the rules', alive, async () => {
          const { data } = await json('/api/v1/rules')
          const all = data.groups.flatMap((group) => group.rules)
          return all.length > 0 && all.every(({ health }) => health !== 'unknown') ? all : false
        })
        for (const { name, health, state, lastError } of rules)
          must(health === 'ok' && state === 'inactive', `${name} is ${health} ${state} ${lastError ?? ''}`)
      })
      over.abort()
      await checks.step('all requests were answered', () => traffic)
      server.alive()
    })
  })
  return `Prometheus ${version}: ${answered} expressions have data; absent, with a GPU only: ${absent.join(', ')}`
}

export const prometheus = {
  about: 'alerts, dashboard and queries of docs/deploy with a real Prometheus that scrapes a real server (Debian)',
  missing,
  steps: ['npm packages', 'native module', 'TypeScript'],
  run,
}
