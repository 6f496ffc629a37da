/**
 * docs/metrics.md lists the families that servers expose, with the texts of the exposition itself; every metric named
 * on a page is one of them.
 *
 * O-1: names, types and labels are those of a scrape.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { renderFamilies } from '../../src/metrics/exposition.js'
import { failedFamily, storeFamilies } from '../../src/metrics/families.js'
import { PYTHON, pythonEnvironment } from '../../scripts/lib/venv.mjs'
import { DECOUPLED, REPEAT, config } from '../../scripts/models/repository.mjs'
import { Mocks } from '../devices/mocks.js'
import { textFolder, writeTextModel } from '../models/text.mjs'
import { TestServer } from '../server/harness.js'
import { ALL, ROOT, spansOf } from './pages.js'

interface Family {
  name: string
  type: string
  help: string
  labels: Set<string>
}

function familiesOf(text: string, into: Map<string, Family>): void {
  for (const [, name = '', help = ''] of text.matchAll(/^# HELP (\S+) (.*)$/gm)) {
    const type = new RegExp(`^# TYPE ${name} (\\w+)$`, 'm').exec(text)?.[1] ?? ''
    const family = into.get(name) ?? { name, type, help, labels: new Set<string>() }
    const suffix = type === 'histogram' || type === 'summary' ? '(?:_bucket|_sum|_count)?' : ''
    for (const [, labels = ''] of text.matchAll(new RegExp(`^${name}${suffix}\\{([^}]*)\\}`, 'gm'))) {
      for (const [, label = ''] of labels.matchAll(/(\w+)="/g)) family.labels.add(label)
    }
    into.set(name, family)
  }
}

const TENSOR = (name: string) => `[ { name: "${name}" data_type: TYPE_FP32 dims: [ -1 ] } ]`

/** A repository whose models use every feature with a family of its own. */
function write(directory: string): void {
  const models: Record<string, string> = {
    limited:
      `backend: "identity"\nmax_batch_size: 0\ninput ${TENSOR('INPUT0')}\noutput ` +
      `${TENSOR('OUTPUT0')}\nresponse_cache { enable: true }\ninstance_group [ { kind: KIND_CPU rate_limiter { ` +
      'resources [ { name: "r" count: 1 } ] } } ]',
    running: 'backend: "python"',
    batching: `backend: "identity"\nmax_batch_size: 4\ninput ${TENSOR('INPUT0')}\noutput ${TENSOR('OUTPUT0')}`,
    streaming: config('repeat', 0, ...REPEAT, DECOUPLED),
  }
  for (const [name, config] of Object.entries(models)) {
    mkdirSync(join(directory, name, '1'), { recursive: true })
    writeFileSync(join(directory, name, 'config.pbtxt'), `${config}\n`)
  }
  writeTextModel(directory, 'embed', textFolder())
  const code =
    'class TritonPythonModel:\n    @staticmethod\n    def auto_complete_config(config):\n ' +
    '       config.add_input({"name": "IN", "data_type": "TYPE_FP32", "dims": [1]})\n ' +
    '       config.add_output({"name": "OUT", "data_type": "TYPE_FP32", "dims": [1]})\n ' +
    '       config.set_max_batch_size(0)\n        return config\n\n    def execute(self, requests):\n ' +
    '       return []\n'
  writeFileSync(join(directory, 'running', '1', 'model.py'), code)
}

/** Counters of the two libraries that measure this process vary between Node releases. */
const OF_NODE = /^nereid_(?:nodejs|process)_/

async function scraped(): Promise<Map<string, Family>> {
  await pythonEnvironment()
  const directory = mkdtempSync(join(tmpdir(), 'nereid-metrics-'))
  write(directory)
  const key = { name: 'robot', sha256: 'a'.repeat(64), scopes: [{ verbs: ['all'] }], expires: '2099-01-31' }
  const keys = { keys: [key], anonymous: { scopes: [{ verbs: ['all'] }] } }
  writeFileSync(join(directory, 'keys.json'), JSON.stringify(keys))
  // A machine with GPUs.
  const mocks = new Mocks()
  const flags = [
    '--metrics-config=summary_latencies=true',
    '--metrics-config=histogram_latencies=true',
    '--rate-limit=execution_count',
    `--backend-config=python,python-executable=${PYTHON}`,
    `--access-log=${join(directory, 'access.log')}`,
    `--audit-log=${join(directory, 'audit.log')}`,
    `--keys-file=${join(directory, 'keys.json')}`,
    '--grpc-use-ssl=true',
    ...['cert', 'key'].map(
      (what) =>
        `--grpc-server-${what}=${join(ROOT, 'test/attacks/lib/tls', what === 'key' ? 'key.pem' : 'certificate.pem')}`,
    ),
  ]
  const families = new Map<string, Family>()
  // Families of cloud repositories and failed loads, made directly, because this test has none.
  const stores = storeFamilies([{ name: 's3://bucket', downloadedBytes: 0, failure: null }])
  familiesOf(renderFamilies([failedFamily(new Map([['/models/failed', 1]])), ...stores], 'text'), families)
  try {
    // The server is unreachable, and the families of a cache are exposed all the same.
    for (const cache of [
      ['--cache-config=local,size=1048576'],
      ['--cache-config=redis,host=127.0.0.1', '--cache-config=redis,port=1'],
    ]) {
      const server = await TestServer.start(directory, [...flags, ...cache], { env: mocks.environment() })
      const scrape = async (): Promise<string> => (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text()
      try {
        await fetch(`${server.url}/v2/models/limited/infer`, {
          method: 'POST',
          body: '{"inputs":[{"name":"INPUT0","shape":[1],"datatype":"FP32","data":[1]}]}',
        })
        expect(await scrape()).toContain('nereid_key_expires_seconds{key="robot"} 4073500800\n')
        // Separate threads query devices.
        familiesOf(
          await vi.waitFor(async () => (expect(await scrape()).toContain('nv_gpu_utilization{'), scrape()), 20_000),
          families,
        )
      } finally {
        await server.stop()
      }
    }
  } finally {
    mocks.remove()
    rmSync(directory, { recursive: true, force: true })
  }
  return families
}

const HEAD = `# Metrics

<!-- Made from what servers show; run the tests of test/docs with \`-u\` after a change of metrics. -->

This page lists all metrics of \`GET :8002/metrics\`. The answer is in the text format of Prometheus; scrapers that request it get OpenMetrics, or gzip. Names that begin with
\`nv_\` are Triton's, with its types and labels. [Operating](operating.md#metrics) lists the metrics to watch. The port requires no key and never uses TLS, and any client that reaches it
can read the names of models and keys: [keep it internal](security.md#what-it-does-not-do) with \`--metrics-address\`.

\`nv_inference_request_success\` also counts requests that a [Python](python.md) or [TypeScript](typescript-models.md)
model answers with an error of its own. An exception counts as a failure.

Latency counters are cumulative: their rate divided by the rate of \`nv_inference_request_success\` is the mean. Some families need a setting:

| families | appear with |
|---|---|
| histogram of first responses in ms | \`--metrics-config=histogram_latencies=true\` |
| latency summaries | \`--metrics-config=summary_latencies=true\` |
| response cache | \`--cache-config\` |
| rate limiter | \`--rate-limit=execution_count\` |
| runners | a Python model |
| repositories | a repository in a cloud |
| GPUs | a GPU and \`libnvidia-ml.so.1\` |

\`nereid_requests_waiting\` and \`nereid_requests_running\` have no labels and count all models, because routers read
one series of a family. A request to an ensemble is counted as the step where it waits or runs: twice only while two
steps run at once. A request to a text model waits as its texts. A body that still arrives and an answer that is still
read are in neither count. \`GET :8002/metrics/requests\` has only these two, for routers that read them many times a
second.

## Histograms

Histograms count from the start of the server, in buckets with the bounds 1, 2 and 5 times a power of ten, from 10 µs to 20 s, and 60 s; for batches, powers of two. This gives the time
that 99 % of the requests of a model wait at most (to within a bucket) over all servers, by Triton's name
and by ours:

\`\`\`
histogram_quantile(0.99, sum by (le, model) (rate(nv_inference_queue_duration_us_bucket[1m])))
histogram_quantile(0.99, sum by (le, model) (rate(nereid_queue_seconds_bucket[1m])))
\`\`\`

In a histogram in OpenMetrics, a bucket has an exemplar: the trace id of its last traced request, its time, and when it ended.

Each version adds 116 series: 24 for each of three times in seconds, and 22 for each of two in µs. A batching model adds 3 more than its bounds (1, 2, 4 … up to \`max_batch_size\`), a
decoupled model 24, and a text model 24 and those of its tokens. Prometheus can drop some with \`metric_relabel_configs\`, for example all with the name \`nereid_compute_seconds_bucket\`.
\`--metrics-config=histograms=false\` hides all. They cost a request some 20 instructions.

## Labels

Labels of the form \`_name\` are the \`metric_tags\` of a model. After these families come \`nereid_process_…\` and \`nereid_nodejs_…\`, which describe the
process, and the families of Python models.
`

function table(title: string, families: Family[]): string {
  const rows = families.map(
    ({ name, type, labels, help }) =>
      `| \`${name}\` | ${type} | ${[...labels]
        .toSorted()
        .map((label) => `\`${label}\``)
        .join(', ')} | ${help} |`,
  )
  return `## ${title}\n\n| name | type | labels | meaning |\n|---|---|---|---|\n${rows.join('\n')}\n`
}

/** Prefixes of file and module names. */
const PYTHON_PACKAGES = new Set(['nereid_runner', 'nereid_server'])

test("docs/metrics.md matches the servers' metrics", { timeout: 60_000 }, async () => {
  const found = [...(await scraped()).values()]
    .filter(({ name }) => !OF_NODE.test(name))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
  const [theirs, ours] = [
    found.filter(({ name }) => name.startsWith('nv_') && !name.endsWith('_bucket')),
    found.filter(({ name }) => name.startsWith('nereid_') || name.endsWith('_bucket')),
  ]
  expect([theirs.length > 25, ours.length > 40]).toEqual([true, true])
  await expect([HEAD, table("Triton's", theirs), table('Not in Triton', ours)].join('\n')).toMatchFileSnapshot(
    join(ROOT, 'docs/metrics.md'),
  )

  const names = new Set(found.map(({ name }) => name))
  const named = ALL.flatMap((page) =>
    spansOf(page).flatMap((span) =>
      [...span.matchAll(/\b((?:nv|nereid)_[a-z]\w*)(…|\*)?/g)].map(([, name = '', cut]) => ({ page, name, cut })),
    ),
  )
  const missing = named.filter(({ page, name, cut }) => {
    if (
      names.has(name) ||
      names.has(name.replace(/_(?:bucket|sum|count)$/, '')) ||
      name.endsWith('_shm') ||
      PYTHON_PACKAGES.has(name)
    )
      return false
    // Crates and modules have such names, too.
    if (page === 'ARCHITECTURE.md' || page === 'bench/README.md') return false
    return cut === undefined || ![...names, 'nereid_process_', 'nereid_nodejs_'].some((one) => one.startsWith(name))
  })
  expect(named.length).toBeGreaterThan(80)
  expect(missing).toEqual([])
})
