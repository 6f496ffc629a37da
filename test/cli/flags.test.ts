import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { FRONT_END_OPTIONS } from '../../src/cli/front_end.js'
import { FLAGS, GROUPS, defaultOptions, optionName, type Flag } from '../../src/cli/flags.js'
import { flagsMarkdown, helpText } from '../../src/cli/help.js'
import { parseArguments, parseObject } from '../../src/cli/parse.js'
import { resolveSettings, type Resolved } from '../../src/cli/settings.js'
import { BACKENDS, backendRow } from '../../src/config/index.js'
import { ROOT } from '../server/harness.js'

const TABLE: readonly Flag[] = FLAGS

/** Triton's options (R-53, Appendix B); a launch script may use any of them. */
const REFERENCE = `help id exit-timeout-secs model-repository model-store exit-on-error disable-auto-complete-config
strict-model-config strict-readiness model-control-mode repository-poll-secs load-model model-config-name
model-load-thread-count model-load-retry-count model-namespacing enable-peer-access allow-http http-address http-port
reuse-http-port http-header-forward-pattern http-thread-count http-max-input-size http-restricted-api allow-grpc
grpc-address grpc-port reuse-grpc-port grpc-header-forward-pattern grpc-infer-thread-count
grpc-infer-allocation-pool-size grpc-max-response-pool-size grpc-use-ssl grpc-use-ssl-mutual grpc-server-cert
grpc-server-key grpc-root-cert grpc-infer-response-compression-level grpc-keepalive-time grpc-keepalive-timeout
grpc-keepalive-permit-without-calls grpc-http2-max-pings-without-data grpc-http2-min-recv-ping-interval-without-data
grpc-http2-max-ping-strikes grpc-max-connection-age grpc-max-connection-age-grace grpc-restricted-protocol log-verbose
log-info log-warning log-error log-format log-file allow-metrics allow-gpu-metrics allow-cpu-metrics metrics-address
metrics-port metrics-interval-ms metrics-config trace-config trace-file trace-level trace-rate trace-count
trace-log-frequency backend-directory backend-config repoagent-directory cache-config cache-directory cache-dir
response-cache-byte-size rate-limit rate-limit-resource pinned-memory-pool-byte-size cuda-memory-pool-byte-size
cuda-virtual-address-size min-supported-compute-capability buffer-manager-thread-count host-policy model-load-gpu-limit
allow-client-shm allow-sagemaker sagemaker-port sagemaker-safe-port-range sagemaker-thread-count allow-vertex-ai
vertex-ai-port vertex-ai-thread-count vertex-ai-default-model`.split(/\s+/)

test('R-53: every option of the reference is in the table, and every name once', () => {
  const names = TABLE.flatMap((f) => [f.name, ...(f.aliases ?? [])])
  expect(REFERENCE.filter((name) => !names.includes(name))).toEqual([])
  expect(new Set(names).size).toBe(names.length)
})

test('every row has a known group and an ASCII meaning', () => {
  for (const flag of TABLE) {
    expect(GROUPS, flag.name).toContain(flag.group)
    expect(flag.meaning, flag.name).toMatch(/^[\x20-\x7e]+\.$/)
  }
})

test('every default is a value its own option accepts', () => {
  for (const flag of TABLE) {
    if (flag.default === null || flag.list === true || flag.kind === 'switch' || flag.default === '') continue
    const { options } = parseArguments([`--${flag.name}=${String(flag.default)}`])
    expect(options[optionName(flag.name)], flag.name).toEqual(flag.default)
  }
})

test('docs/flags.md matches the table', async () => {
  await expect(flagsMarkdown()).toMatchFileSnapshot('../../docs/flags.md')
})

test('help names every option within 100 columns, except for long option names', () => {
  const text = helpText('nereid')
  for (const flag of TABLE) expect(text).toContain(`--${flag.name}`)
  expect(text.split('\n').filter((line) => line.length > 100)).toEqual([])
})

function value(args: string[], name: string): unknown {
  return (parseArguments(args).options as Record<string, unknown>)[name]
}

test.each([
  [['--http-port=9000'], 'httpPort', 9000],
  [['--http-port', '9000'], 'httpPort', 9000],
  [['--strict-readiness=FALSE'], 'strictReadiness', false],
  [['--strict-readiness', '0'], 'strictReadiness', false],
  [['--allow-http=on'], 'allowHttp', true],
  [['--allow-http=Off'], 'allowHttp', false],
  [['--disable-auto-complete-config'], 'disableAutoCompleteConfig', true],
  [['--disable-auto-complete-config', '--id=x'], 'id', 'x'],
  [['--log-verbose=true'], 'logVerbose', 1],
  [['--log-verbose=3'], 'logVerbose', 3],
  [['--model-control-mode=EXPLICIT'], 'modelControlMode', 'explicit'],
  [['--model-store=/a', '--model-repository', '/b'], 'modelRepository', ['/a', '/b']],
  [['--exit-timeout-secs=-5'], 'exitTimeoutSecs', 0],
  [['--model-load-thread-count=0'], 'modelLoadThreadCount', 1],
  [['--http-restricted-api=health:k=v=w'], 'httpRestrictedApi', ['health:k=v=w']],
  [['--id='], 'id', ''],
  [['--model-repo=/m'], 'modelRepository', ['/m']],
  [['--http-port=1', '--http-port=2'], 'httpPort', 2],
  [['--memory-limit=2g'], 'memoryLimit', 2 ** 31],
  [['--memory-limit', ' 512MiB '], 'memoryLimit', 2 ** 29],
  [['--repository-cache-bytes=1.5T'], 'repositoryCacheBytes', 1.5 * 2 ** 40],
  [['--http-max-input-size=100kb'], 'httpMaxInputSize', 102_400],
  [['--pinned-memory-pool-byte-size=64Mi'], 'pinnedMemoryPoolByteSize', 2 ** 26],
  [['--pinned-region-byte-size=0'], 'pinnedRegionByteSize', 0],
  [['--response-cache-byte-size=7b'], 'responseCacheByteSize', 7],
])('%j sets %s', (args, name, expected) => {
  expect(value(args, name)).toEqual(expected)
})

test.each([
  ['--exit-timeout-secs=-5', 'Warning: --exit-timeout-secs is 0 at least, and is taken as that. Got -5'],
  ['--model-load-thread-count=0', 'Warning: --model-load-thread-count is 1 at least, and is taken as that. Got 0'],
])('%s is taken, with a warning', (arg, warning) => {
  expect(resolve(arg).warnings).toEqual([warning])
})

test.each(['http', 'grpc', 'metrics'])('a port of %s that nothing listens at may be any number', (service) => {
  for (const port of [-47, 70000])
    expect(() => resolve(`--${service}-port=${port}`)).toThrow(
      `Provided option value is out of bound. Got ${port}; it is from 0 to 65535`,
    )
  expect(resolve(`--${service}-port=-47`, `--allow-${service}=0`).warnings).toEqual([])
  // Metrics are served at the HTTP address by default.
  expect(resolve('--http-address=-47', '--allow-http=0').settings.metrics?.address).toBe('127.0.0.1')
})

test.each(['--log-verbose=-1', '--memory-limit=0', '--memory-limit=1048576', '--exit-timeout-secs=0'])(
  '%s is taken without a warning',
  (arg) => {
    expect(resolve(arg).warnings).toEqual([])
  },
)

test.each([
  [
    ['--strict-readines=maybe'],
    /Bad option: "--strict-readiness"\.\ninvalid value for bool option: maybe; it is true or false$/,
  ],
  [
    ['--listen-early', '--http-port=1'],
    /invalid value for bool option: --http-port=1; the option needs a value, such as --listen-early=true$/,
  ],
  [['--listen-early'], /The option needs a value, such as --listen-early=true$/],
  [['--log-verbose'], /The option needs a value, such as --log-verbose=true$/],
  [['--http-port=x'], /Bad option: "--http-port"\.\nInvalid option value\. Got x/],
  [['--access-log-rate=1.5'], /Provided option value is out of bound\. Got 1\.5; it is from 0 to 1$/],
  [['--memory-limit=2x'], /Bad option: "--memory-limit"\.\nInvalid option value\. Got 2x/],
  [['--memory-limit=-1m'], /Provided option value is out of bound\. Got -1048576; it is from 0 to/],
  [['--http-max-input-size=0'], /Error: --http-max-input-size must be greater than 0\. Got 0$/],
  [['--grpc-max-response-pool-size=3000000000'], /must be greater than 0\. Got 3000000000; it is at most 2147483647$/],
  [['--grpc-infer-thread-count=1'], /invalid argument for --grpc_infer_thread_count\. Must be in the range 2 to 128\./],
  [['--grpc-max-response-pool-size=0'], /Error: --grpc-max-response-pool-size must be greater than 0\./],
  [
    ['--model-control-mode=auto'],
    /\ninvalid argument for --model-control-mode; it takes none, poll, explicit\. Got auto$/,
  ],
  [
    ['--model-control-mode=explict'],
    /\ninvalid argument for --model-control-mode; it takes none, poll, explicit\. Got explict; did you mean 'explicit'\?$/,
  ],
  [
    ['--gpu-fallback=cup'],
    /\ninvalid argument for --gpu-fallback; it takes error, cpu\. Got cup; did you mean 'cpu'\?$/,
  ],
  [['--log-format=iso8601'], /invalid argument for --log-format; .* did you mean 'ISO8601'\?/],
  [['--rate-limit=x'], /invalid argument for --rate-limit/],
  [['--model-config-name='], /Error: empty argument for --model-config-name/],
  [['--repoagent-directory='], /--repoagent-directory can not be empty/],
  [['--http-prot=1'], /unrecognized option '--http-prot'; did you mean '--http-port'\?/],
  [['--model-repositry=x'], /did you mean '--model-repository'\?/],
  [['--zzzzzzzz'], /^unrecognized option '--zzzzzzzz'$/],
  [['--http=1'], /option '--http' is ambiguous; possibilities: --http-address /],
  [['--host', '::'], /'--host', which is of Triton's OpenAI front end; write --http-address and --grpc-address$/],
  [['--kserve-http-port=1'], /front end; write --http-port$/],
  [
    ['--backend=vllm'],
    /^unrecognized option '--backend', .*; leave it out: requests have the form of the tensors of the model$/,
  ],
  [['--enable-kserve-frontends'], /; leave it out: --http-port and --grpc-port are open without it$/],
  [['--uvicorn-log-level=info'], /; leave it out: /],
  [['--tritonserver-log-verbose-level=1'], /; write --log-verbose$/],
  [['models'], /^Unexpected argument: models$/],
  [['--http-port'], /The option needs a value\.$/],
])('R-54: %j is refused', (args, text) => {
  expect(() => parseArguments(args)).toThrow(text)
})

test('the in-process API takes the same options and refuses with the same texts', () => {
  const { options, given } = parseObject({
    modelRepository: './m',
    httpPort: 1,
    exitOnError: false,
    loadModel: ['a', 'b'],
  })
  expect(options).toMatchObject({ modelRepository: ['./m'], httpPort: 1, exitOnError: false, loadModel: ['a', 'b'] })
  expect([...given.keys()]).toEqual(['model-repository', 'http-port', 'exit-on-error', 'load-model'])
  expect(() => parseObject({ httpPort: 'x' })).toThrow(/Bad option: "--http-port"\.\nInvalid option value\. Got x/)
  expect(() => parseObject({ htpPort: 1 })).toThrow("unrecognized option 'htpPort'; did you mean 'httpPort'?")
})

test('docs/chat.md has a row for each option of main.py that is another one here', () => {
  const page = readFileSync(join(ROOT, 'docs/chat.md'), 'utf8')
  const table = page.slice(page.indexOf('| option there | here |'), page.indexOf('| differs | Triton | here |'))
  for (const [name, { flags }] of FRONT_END_OPTIONS) {
    const row = table.split('\n').find((line) => line.slice(0, line.indexOf(' | ')).includes(`\`${name}\``))
    if (flags.length === 0) expect(row, name).toContain('leave it out')
    for (const flag of flags) expect(row, name).toContain(`--${flag}`)
    for (const flag of flags) expect(TABLE.some((one) => one.name === flag)).toBe(true)
  }
})

function resolve(...args: string[]): Resolved {
  return resolveSettings(parseArguments(['--model-repository=/m', ...args]))
}

test.each([
  [['--load-model=a'], /Use of '--load-model' requires setting '--model-control-mode=explicit' as well\./],
  [
    ['--http-port=8001'],
    /cannot listen to HTTP requests and GRPC requests at the same address and port 0\.0\.0\.0:8001/,
  ],
  [
    ['--metrics-port=8000'],
    /cannot listen to HTTP requests and Metrics requests at the same address and port 0\.0\.0\.0:8000/,
  ],
  [['--http-restricted-api=nope:a=b'], /unknown restricted api 'nope' ; valid are health, metadata, .*, logging$/],
  [
    ['--http-restricted-api=infrence:a=b'],
    /unknown restricted api 'infrence' ; valid are .*; did you mean 'inference'\?$/,
  ],
  [
    ['--rate-limit-resource=R:3000000000'],
    /Provided option value is out of bound\. Got 3000000000; it is from 0 to 2147483647$/,
  ],
  [
    ['--memory-limit=1'],
    /"--memory-limit"\.\nProvided option value is out of bound\. Got 1; it is 0 for the default, or from 1048576 bytes/,
  ],
  [
    ['--cuda-memory-pool-byte-size=9999:1'],
    /Provided option value is out of bound\. Got 9999:1; the device is from 0 to 1023$/,
  ],
  [
    ['--http-restricted-api=health:a=b', '--http-restricted-api=trace,health:c=d'],
    /restricted api 'health' can not be specified in multiple config groups/,
  ],
  [
    ['--http-restricted-api=health'],
    /--http-restricted-api option format is '<config name>:<setting>=<value>'\. Got health$/,
  ],
  [
    ['--grpc-restricted-protocol=health:k='],
    /--grpc-restricted-protocol option format is '<config name>:<setting>=<value>'\. Got health:k=$/,
  ],
  [['--grpc-restricted-protocol=nope:a=b'], /unknown restricted protocol 'nope' /],
  [
    ['--grpc-restricted-protocol=health:a=b', '--grpc-restricted-protocol=trace,health:c=d'],
    /restricted protocol 'health' can not be specified in multiple config groups/,
  ],
  [
    ['--backend-config=x'],
    /No backend specified\. --backend-config option format is <backend name>,<setting>=<value> or <setting>=<value>\. Got x/,
  ],
  [['--backend-config=b,x'], /--backend-config option format is '<backend name>,<setting>=<value>'\. Got b,x/],
  [['--backend-config=b,=x'], /--backend-config option format is '<backend name>,<setting>=<value>'\./],
  [['--metrics-config=a,b=c'], /--metrics-config option format is <setting>=<value>\. Got a,b=c/],
  [['--metrics-config=counter_latencies'], /--metrics-config option format is <setting>=<value>\. Got /],
  [['--trace-config=level=TIMESTAMP'], /invalid value for trace level option: TIMESTAMP; did you mean 'TIMESTAMPS'\?/],
  [
    ['--trace-config=level=SOME'],
    /Bad option: "--trace-config level=SOME"\.\ninvalid value for trace level option: SOME/,
  ],
  [
    ['--trace-config=mode=x'],
    /invalid value for trace mode option: x\. Available options are "triton" and "opentelemetry"/,
  ],
  [
    ['--trace-config=rate'],
    /No trace mode specified\. --trace-config option format is <trace mode>,<setting>=<value> or <setting>=<value>\. Got rate/,
  ],
  [['--trace-config=opentelemetry,bsp_max_queue_size=0'], /bsp_max_queue_size: 0\. It is a whole number/],
  [['--trace-config=opentelemetry,url=ftp://x'], /url: ftp:\/\/x\. It is a URL of http or https/],
  [
    ['--trace-config=triton,file'],
    /--trace-config option format is '<trace mode>,<setting>=<value>'\. Got triton,file/,
  ],
  [['--host-policy=a=b'], /--host-policy option format is/],
  [
    ['--grpc-use-ssl=true'],
    /Bad option: "--grpc-server-cert"\.\nA server with TLS needs the file of its certificate, in PEM\./,
  ],
  [['--grpc-use-ssl=true', '--grpc-server-cert=c'], /Bad option: "--grpc-server-key"/],
  [['--grpc-use-ssl-mutual=true', '--grpc-server-cert=c', '--grpc-server-key=k'], /Bad option: "--grpc-root-cert"/],
  [['--http-use-ssl=true', '--http-server-key=k'], /Bad option: "--http-server-cert"/],
])('R-54: %j together are refused', (args, text) => {
  expect(() => resolve(...args)).toThrow(text)
})

test('a command line without a repository is refused', () => {
  expect(() => resolveSettings(parseArguments([]))).toThrow('--model-repository must be specified')
})

test('defaults are those of the reference', () => {
  const { settings, exitTimeoutSecs, warnings, inactive } = resolve()
  expect({ exitTimeoutSecs, warnings, inactive }).toEqual({ exitTimeoutSecs: 30, warnings: [], inactive: [] })
  expect(settings.exitOnError).toBe(true)
  expect(settings).toMatchObject({
    core: {
      engine: {
        metadata: { name: 'triton' },
        strictReadiness: true,
        httpInputBytesMax: 67108864,
        allowClientShm: false,
        sequenceLimit: 65536,
        exitOnDeviceError: false,
      },
      memoryLimitBytes: 0,
      deviceMemory: {
        pinnedPoolBytes: 268435456,
        devicePools: [],
        lockedRegionBytesMax: 1073741824,
        loadLimits: [],
        peerAccess: true,
      },
    },
    http: { address: '0.0.0.0', port: 8000 },
    grpc: { address: '0.0.0.0', port: 8001 },
    metrics: { address: '0.0.0.0', port: 8002, cpu: true, gpu: true, intervalMs: 2000 },
    metricsConfig: { counterLatencies: true, histogramLatencies: false, summaryLatencies: false },
    repository: { mode: 'none', pollSecs: 0, autoComplete: true, loadThreads: 4, loadRetries: 0 },
  })
  expect(settings.metricsConfig.summaryQuantiles.map((q) => q.quantile)).toEqual([0.5, 0.9, 0.95, 0.99, 0.999])
  expect(Object.keys(defaultOptions())).toHaveLength(TABLE.length)
})

test('R-14: the deprecated strictness switch works and warns', () => {
  expect(resolve('--strict-model-config=true').settings.repository.autoComplete).toBe(false)
  const both = resolve('--strict-model-config=false', '--disable-auto-complete-config')
  expect(both.settings.repository.autoComplete).toBe(false)
  expect(both.warnings).toEqual([
    "Warning: '--strict-model-config' has been deprecated! Please use '--disable-auto-complete-config' instead.",
    "Warning: Overriding deprecated '--strict-model-config' from False to True in favor of " +
      "'--disable-auto-complete-config'!",
  ])
})

test('accepted options that were given are named, once each', () => {
  const { inactive } = resolve('--host-policy=a,x=1', '--host-policy=a,y=2', '--allow-sagemaker=true', '--id=a')
  expect(inactive).toEqual(['host-policy', 'allow-sagemaker'])
})

test('restrictions carry their groups; gRPC keys get their prefix', () => {
  const { settings } = resolve('--http-restricted-api=health,trace:k=v', '--grpc-restricted-protocol=inference:k=v')
  expect(settings.http?.restrictions).toEqual([{ apis: ['health', 'trace'], key: 'k', value: 'v' }])
  expect(settings.grpc?.restrictions).toEqual([{ apis: ['inference'], key: 'triton-grpc-protocol-k', value: 'v' }])
})

test('metrics listen on the HTTP address by default', () => {
  expect(resolve('--http-address=127.0.0.1').settings.metrics?.address).toBe('127.0.0.1')
  expect(resolve('--http-address=127.0.0.1', '--metrics-address=::1').settings.metrics?.address).toBe('::1')
  expect(resolve('--allow-metrics=false').settings.metrics).toBeNull()
})

test.each([
  [['--metrics-config=counter_latencies=false'], { counterLatencies: false }],
  [['--metrics-config=summary_latencies=TRUE'], { summaryLatencies: false }],
  [['--metrics-config=nonsense=true'], { counterLatencies: true }],
  [
    ['--metrics-config=summary_quantiles=0.1:0.0.1,0.7:0.01'],
    {
      summaryQuantiles: [
        { quantile: 0.1, error: 0 },
        { quantile: 0.7, error: 0.01 },
      ],
    },
  ],
  [['--metrics-config=summary_quantiles="0.5:0.05"'], { summaryQuantiles: [{ quantile: 0.5, error: 0.05 }] }],
])('O 1.1: %j', (args, expected) => {
  expect(resolve(...args).settings.metricsConfig).toMatchObject(expected)
})

test('O 1.1: a quantile without an error is reported and skipped', () => {
  const { settings, warnings } = resolve('--metrics-config=summary_quantiles=0.5')
  expect(warnings).toEqual(["Invalid option: [0.5]. No ':' delimiter found. Expected format is <quantile>:<error>"])
  expect(settings.metricsConfig.summaryQuantiles).toHaveLength(5)
})

test.each([
  [
    '--metrics-config=histogram_latency=true',
    "--metrics-config has no setting 'histogram_latency'; did you mean 'histogram_latencies'?",
  ],
  [
    '--metrics-config=histogram_latencies=yes',
    '--metrics-config=histogram_latencies is true or false, and stays false. Got yes',
  ],
  [
    '--backend-config=defualt-max-batch-size=8',
    "--backend-config without the name of a backend has no setting 'defualt-max-batch-size'; did you mean " +
      "'default-max-batch-size'?",
  ],
  [
    '--backend-config=python,shm-default-bytes-size=8',
    "the backend 'python' has no setting 'shm-default-bytes-size'; did you mean 'shm-default-byte-size'?",
  ],
  ['--backend-config=onnxruntime,xyzzy=8', "the backend 'onnxruntime' has no setting 'xyzzy'"],
  ['--backend-config=tensorrt,plugins=/x.so', "the backend 'tensorrt' has no setting 'plugins'"],
  ['--backend-config=tensorflow,version=1', "the backend 'tensorflow' has no setting 'version'"],
  ['--backend-config=pytorch,xyzzy=8', "the backend 'pytorch' has no setting 'xyzzy'"],
  ['--backend-config=openvino,xyzzy=8', "the backend 'openvino' has no setting 'xyzzy'"],
  [
    '--backend-config=onnx,library=/x',
    "--backend-config names no backend of this server: 'onnx'; did you mean 'onnxruntime'?",
  ],
  ['--host-policy=p,numa_nodes=1', "--host-policy has no setting 'numa_nodes'; did you mean 'numa-node'?"],
  ['--trace-config=rte=1', "--trace-config has no setting 'rte'; did you mean 'rate'?"],
  [
    '--trace-config=triton,log-freqency=1',
    "--trace-config=triton has no setting 'log-freqency'; did you mean 'log-frequency'?",
  ],
  ['--http-server-cert=c', '--http-server-cert has no effect: without --http-use-ssl=true the port serves plain text'],
  ['--grpc-server-key=k', '--grpc-server-key has no effect: without --grpc-use-ssl=true the port serves plain text'],
  [
    '--trace-config=opentelemtry,url=http://x',
    "--trace-config has no mode 'opentelemtry'; did you mean 'opentelemetry'?",
  ],
])('a setting that nothing reads is told: %s', (flag, warning) => {
  expect(resolve(flag).warnings).toEqual([`Warning: ${warning}`])
})

test('known settings, and unknown backends, cause no warning', () => {
  const known = BACKENDS.flatMap(({ name, settings = [] }) =>
    settings.map((key) => `--backend-config=${name},${key}=1`),
  )
  const flags = [
    '--backend-config=onnxruntime,default-max-batch-size=8',
    '--backend-config=intra_op_thread_count=2',
    '--backend-config=my_own,anything=1',
    '--backend-config=vllm,x=1',
    '--host-policy=a,cpu-cores=0-3',
  ]
  expect(resolve(...known, ...flags).warnings).toEqual([])
})

test('the table of backend settings matches their code', () => {
  const armsOf = (file: string): string[] => {
    const source = readFileSync(join(ROOT, 'crates', file), 'utf8')
    const arms = source.slice(0, source.indexOf('mod tests')).matchAll(/^ {12}((?:"[a-z_-]+"(?: \| )?)+) =>/gm)
    return [...arms].flatMap(([, keys = '']) => keys.split(' | ').map((key) => key.slice(1, -1)))
  }
  const shared = armsOf('backend-process/src/settings.rs').filter((key) => !['on', 'off', 'true'].includes(key))
  // The server sets it itself, for the program that started it.
  const options = armsOf('backend-python/src/options.rs').filter((key) => key !== 'inline-control')
  const python = [...shared, ...options]
  expect(python.length).toBeGreaterThan(10)
  expect(backendRow('python')?.settings?.toSorted()).toEqual(python.toSorted())
  // It refuses two: tensors of a thread always lie in its memory, and it starts no programs.
  const own = armsOf('backend-javascript/src/settings.rs').filter((key) => !['new-privileges', 'shm'].includes(key))
  const javascript = [...shared.filter((key) => key !== 'shm'), ...own]
  expect(backendRow('javascript')?.settings?.toSorted()).toEqual(javascript.toSorted())
  const onnx = ['options.rs', 'open.rs', 'cache.rs', 'provider/places.rs']
    .map((file) => readFileSync(join(ROOT, 'crates/backend-onnx/src', file), 'utf8').replace(/mod tests[^]*/, ''))
    .join('\n')
  const known = backendRow('onnxruntime')?.settings ?? []
  for (const key of known) expect(onnx, key).toContain(`"${key}"`)
  const read = [...onnx.matchAll(/setting\((?:&?[a-z.]+, )?"([a-z_-]+)"\)|k == "([a-z-]+)"/g)].map(([, a, b]) => a ?? b)
  expect(read.length).toBeGreaterThan(4)
  expect(read.filter((key) => !known.includes(key ?? ''))).toEqual([])
})

test('backend settings keep their order and backend', () => {
  expect(
    resolve('--backend-config=a=1', '--backend-config=onnxruntime,b=2,c=3').settings.repository.backendConfig,
  ).toEqual([
    { backend: null, key: 'a', value: '1' },
    { backend: 'onnxruntime', key: 'b', value: '2,c=3' },
  ])
})

test('O-36, O-46: settings of mode opentelemetry keep their order', () => {
  const { settings } = resolve(
    '--trace-config=mode=opentelemetry',
    '--trace-config=opentelemetry,resource=a=1',
    '--trace-config=opentelemetry,bsp_schedule_delay=9',
    '--trace-config=opentelemetry,url=localhost:1/x',
    '--trace-config=opentelemetry,resource=b=2',
  )
  expect(settings.trace.spans).toMatchObject({
    url: 'http://localhost:1/x',
    delayMs: 9,
    resource: [
      ['a', '1'],
      ['b', '2'],
    ],
  })
  expect(settings.trace.exporter.map(([key, value]) => `${key}=${value}`)).toEqual([
    'url=localhost:1/x',
    'resource=a=1,b=2',
    'bsp_max_queue_size=2048',
    'bsp_schedule_delay=9',
    'bsp_max_export_batch_size=512',
  ])
})

test('O-36: trace settings from the command line', () => {
  const { settings, warnings } = resolve(
    '--trace-config=level=TENSORS',
    '--trace-config=level=OFF',
    '--trace-config=level=timestamps',
    '--trace-config=rate=7',
    '--trace-config=triton,file=/t',
    '--trace-rate=9',
    '--trace-count=3',
  )
  expect(settings.trace).toMatchObject({
    levels: ['TIMESTAMPS', 'TENSORS'],
    rate: 7,
    count: 3,
    file: '/t',
    mode: 'triton',
  })
  expect(warnings[0]).toBe(
    "Warning: Overriding deprecated '--trace-rate' in favor of provided rate value in --trace-config!",
  )
})

test('--openai-restricted-api warns of an HTTP port that is open', () => {
  const openai = ['--openai-port=9000', '--openai-restricted-api', 'inference,metrics', 'X-Key', 'secret']
  const warned = resolve(...openai, '--http-restricted-api=statistics:X-Key=secret').warnings
  expect(warned).toHaveLength(1)
  expect(warned[0]).toContain('--http-restricted-api=inference:<header>=<value>')
  for (const more of ['--http-restricted-api=inference,statistics:k=v', '--allow-http=false', '--keys-file=keys.json'])
    expect(resolve(...openai, more).warnings).toEqual([])
})
