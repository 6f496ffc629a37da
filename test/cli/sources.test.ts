/** Options from variables and from a file: precedence, errors, and hostile files. */

import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, test } from 'vitest'
import { FLAGS, type Flag } from '../../src/cli/flags.js'
import { parseObject } from '../../src/cli/parse.js'
import { resolveSettings } from '../../src/cli/settings.js'
import { FILE_BYTES_MAX, readOptions, variablesOf } from '../../src/cli/sources.js'
import { filesBelow } from '../docs/files.js'
import { ROOT, TestServer, repositories, simpleBody } from '../server/harness.js'

const MAIN = join(ROOT, 'dist/cli/main.js')
const TABLE: readonly Flag[] = FLAGS
const generated = repositories()
const directory = mkdtempSync(join(tmpdir(), 'nereid-sources-'))
afterAll(() => {
  generated.remove()
  rmSync(directory, { recursive: true, force: true })
})

/** Without the variables of the tests' user. */
const CLEAN = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('NEREID_')))

let made = 0
function file(content: string | Uint8Array): string {
  const path = join(directory, `options-${(made += 1)}.yaml`)
  writeFileSync(path, content)
  return path
}

function nereid(
  args: string[],
  variables: NodeJS.ProcessEnv = {},
): { code: number | null; stdout: string; stderr: string } {
  const ran = spawnSync(process.execPath, [MAIN, ...args], {
    encoding: 'utf8',
    timeout: 30_000,
    cwd: directory,
    env: { ...CLEAN, ...variables },
  })
  return { code: ran.status, stdout: ran.stdout, stderr: ran.stderr }
}

describe('precedence', () => {
  const config = file(
    'http-port: 3\ngrpc-port: 3\nmetrics-port: 3\nid: file\nmodel-repository: [/file, /more]\nload-model:\n ' +
      ' - a\n  - b\n',
  )
  const variables = {
    NEREID_CONFIG: config,
    NEREID_HTTP_PORT: '2',
    NEREID_GRPC_PORT: '2',
    NEREID_LOAD_MODEL: 'c\nd e\n',
    NEREID_ID: '',
  }

  test('flags override variables, variables the file, the file the defaults', async () => {
    const { options, given, warnings } = await readOptions(['--http-port=1'], variables)
    expect(options).toMatchObject({
      httpPort: 1,
      grpcPort: 2,
      metricsPort: 3,
      id: 'file',
      modelRepository: ['/file', '/more'],
      loadModel: ['c', 'd e'],
      exitTimeoutSecs: 30,
    })
    expect(Object.fromEntries(given)).toEqual({
      config: 'NEREID_CONFIG',
      'http-port': 'command line',
      'grpc-port': 'NEREID_GRPC_PORT',
      'load-model': 'NEREID_LOAD_MODEL',
      'metrics-port': `${config}:3`,
      id: `${config}:4`,
      'model-repository': `${config}:5`,
    })
    expect(warnings).toEqual([])
    const named = await readOptions(['--load-model=x', `--config=${config}`, '--model-repository=/line'], {
      ...variables,
      NEREID_CONFIG: '/nowhere',
    })
    expect(named.options).toMatchObject({ loadModel: ['x'], modelRepository: ['/line'] })
    expect((await readOptions(['--config='], variables)).options.metricsPort).toBe(8002)
  })

  test('all flags but help and version have a variable', async () => {
    for (const flag of TABLE) {
      const text =
        flag.kind === 'string'
          ? 'x'
          : flag.kind === 'choice'
            ? String(flag.choices[0])
            : ['number', 'integer', 'bytes'].includes(flag.kind)
              ? String(('min' in flag ? flag.min : undefined) ?? 1)
              : 'true'
      const names = ['help', 'version'].includes(flag.name) ? [] : [flag.name, ...(flag.aliases ?? [])]
      expect(variablesOf(flag)).toHaveLength(names.length)
      if (flag.name === 'config') continue
      for (const [i, name] of names.entries()) {
        const fromVariable = await readOptions([], { [variablesOf(flag)[i] ?? '']: text })
        const fromFile = await readOptions([`--config=${file(`${name}: ${text}\n`)}`], {})
        expect([...fromVariable.given.keys()], name).toEqual([flag.name])
        expect([...fromFile.given.keys()], name).toEqual(['config', flag.name])
        expect({ ...fromFile.options, config: '' }).toEqual(fromVariable.options)
      }
    }
  })

  test('the in-process API reads neither, and has no option config', () => {
    expect(() => parseObject({ config: 'x' })).toThrow("unrecognized option 'config'")
  })

  test('targets of check override a repository of a variable or a file', () => {
    const repository = generated.path('small')
    expect(nereid(['check', '--format=json'], { NEREID_MODEL_REPOSITORY: repository }).stdout).toMatch(
      /"models": [1-9]/,
    )
    expect(nereid(['check', join(repository, 'simple')], { NEREID_MODEL_REPOSITORY: '/nowhere' }).code).toBe(0)
    expect(nereid(['check', join(repository, 'simple'), `--config=${file('model-repository: /nowhere')}`]).code).toBe(0)
    expect(nereid(['gpu'], { NEREID_MIN_SUPPORTED_COMPUTE_CAPABILITY: 'x' }).stderr).toContain(
      'NEREID_MIN_SUPPORTED_COMPUTE_CAPABILITY: Bad option',
    )
  })
})

describe('a server', () => {
  test('takes its ports, repository and lists from variables and a file', async () => {
    const repository = join(directory, 'models')
    mkdirSync(join(repository, 'env/1'), { recursive: true })
    const tensor = (name: string): string => `{ name: "${name}" data_type: TYPE_STRING dims: [ 1 ] }`
    writeFileSync(
      join(repository, 'env/config.pbtxt'),
      `backend: "python"\ninput [ ${tensor('IN')} ]\noutput [ ${tensor('OUT')} ]\n`,
    )
    writeFileSync(
      join(repository, 'env/1/model.py'),
      [
        'import json, os',
        'import numpy as np',
        'import triton_python_backend_utils as pb_utils',
        'class TritonPythonModel:',
        '    def execute(self, requests):',
        '        seen = {k: v for k, v in os.environ.items() if k.startswith("NEREID_") and k != "NEREID_RUNNER"}',
        '        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([json.dumps(seen)], ' +
          'dtype=object))]) for _ in requests]',
      ].join('\n'),
    )
    const variables = {
      NEREID_CONFIG: file(`id: from a file\nmodel-repository:\n  - ${repository}\n`),
      NEREID_LOG_VERBOSE: '1',
      NEREID_MODEL_CONTROL_MODE: 'explicit',
      NEREID_LOAD_MODEL: 'env\nsimple',
    }
    const env = { ...CLEAN, ...variables, PATH: `${join(ROOT, '.venv/bin')}:${process.env['PATH'] ?? ''}` }
    // The harness passes a repository on the command line, which overrides that of the file.
    const server = await TestServer.start(repository, [`--model-repository=${generated.path('small')}`], { env })
    try {
      expect(await (await fetch(`${server.url}/v2`)).json()).toMatchObject({ name: 'from a file' })
      expect((await fetch(`${server.url}/v2/models/simple/infer`, { method: 'POST', body: simpleBody() })).status).toBe(
        200,
      )
      const body = JSON.stringify({ inputs: [{ name: 'IN', shape: [1], datatype: 'BYTES', data: [''] }] })
      const answer = (await (await fetch(`${server.url}/v2/models/env/infer`, { method: 'POST', body })).json()) as {
        outputs: { data: string[] }[]
      }
      expect(JSON.parse(answer.outputs[0]?.data[0] ?? '')).toEqual(variables)
    } finally {
      await server.stop()
    }
  })

  test('a port variable that Kubernetes sets for a Service is ignored with a warning', async () => {
    const variables = {
      NEREID_HTTP_PORT: 'tcp://10.0.0.1:8000',
      NEREID_HTTP_SERVICE_HOST: '10.0.0.1',
      NEREID_HTTP_SERVICE_PORT: '8000',
      NEREID_HTTP_PORT_8000_TCP: 'tcp://10.0.0.1:8000',
      NEREID_HTTP_PORT_8000_TCP_PROTO: 'tcp',
      NEREID_HTTP_PORT_8000_TCP_PORT: '8000',
      NEREID_HTTP_PORT_8000_TCP_ADDR: '10.0.0.1',
      NEREID_PORT: 'udp://10.0.0.1:1',
      NEREID_VERSION: 'x',
      NEREID_HELP: 'x',
      NEREID_ANYTHING: 'y',
    }
    const { options, warnings } = await readOptions([], variables)
    expect(options.httpPort).toBe(8000)
    expect(warnings).toEqual([
      'Warning: NEREID_HTTP_PORT is ignored: it is tcp://10.0.0.1:8000, as Kubernetes sets it for a Service ' +
        'named nereid-http (enableServiceLinks: false in the pod leaves it out)',
    ])
    const server = await TestServer.start(generated.path('small'), [], { env: { ...CLEAN, ...variables } })
    await server.stop()
    expect(server.stderr).toContain('Warning: NEREID_HTTP_PORT is ignored')
  })

  test('a variable that is nearly that of a flag is named', async () => {
    expect((await readOptions([], { NEREID_HTTP_PROT: '1' })).warnings).toEqual([
      "Warning: nothing reads NEREID_HTTP_PROT; did you mean 'NEREID_HTTP_PORT'?",
    ])
  })

  test('no other variable of this project is that of a flag, or like a misspelt one', async () => {
    const places = [
      'src',
      'crates',
      'scripts',
      'client/src',
      'packaging',
      'images',
      'test/gpu',
      'test/heavy',
      'test/embed',
    ]
    const text = places
      .flatMap((place) => filesBelow(join(ROOT, place), /\.(?:ts|mjs|rs|py|c|service|toml)$|Containerfile$/))
      .map((path) => readFileSync(path, 'utf8'))
    const names = new Set(text.flatMap((one) => one.match(/\bNEREID_[A-Z][A-Z0-9_]*\b/g) ?? []))
    for (const own of [
      'NEREID_KEY',
      'NEREID_LIBCUDA',
      'NEREID_PYTHON',
      'NEREID_RUNNER',
      'NEREID_MODELS',
      'NEREID_FLAGS',
    ])
      expect(names).toContain(own)
    // The images' health check uses the port of the server's variable, and help mentions both.
    const meant = ['NEREID_HTTP_PORT', 'NEREID_CONFIG', 'NEREID_MODEL_REPOSITORY']
    // A program that embeds a server sets the last two.
    for (const name of [...meant, 'NEREID_ALLOW_HTTP', 'NEREID_ALLOW_GRPC']) names.delete(name)
    const { given, warnings } = await readOptions([], Object.fromEntries([...names].map((name) => [name, 'x'])))
    expect([[...given.keys()], warnings]).toEqual([[], []])
  })
})

describe('mistakes', () => {
  test.each([
    [
      { NEREID_REACTOR_THREADS: '2000' },
      'NEREID_REACTOR_THREADS: Bad option: "--reactor-threads".\nProvided option value is out of bound. Got 2000; ' +
        'it is from 0 to 1024',
    ],
    [
      { NEREID_LOG_FORMAT: 'jsn' },
      'NEREID_LOG_FORMAT: Bad option: "--log-format".\ninvalid argument for --log-format; it takes default, ' +
        "ISO8601, json. Got jsn; did you mean 'json'?",
    ],
    [
      { NEREID_DISABLE_AUTO_COMPLETE_CONFIG: 'maybe' },
      'NEREID_DISABLE_AUTO_COMPLETE_CONFIG: Bad option: "--disable-auto-complete-config".\ninvalid value for ' +
        'bool option: maybe; it is true or false',
    ],
    [
      { NEREID_CONFIG: '/nowhere.yaml' },
      'NEREID_CONFIG: Bad option: "--config".\nfailed to open text file for read /nowhere.yaml: No such file ' +
        'or directory',
    ],
  ])('of %j name the variable', async (variables, text) => {
    await expect(readOptions([], variables)).rejects.toThrow(new RegExp(`^${text.replace(/[.?"()]/g, '\\$&')}$`))
  })

  test('errors about several options name the source of the value', async () => {
    const resolve = async (variables: NodeJS.ProcessEnv, yaml: string): Promise<unknown> =>
      resolveSettings(await readOptions(['--model-repository=/m', `--config=${file(yaml)}`], variables), {})
    await expect(resolve({ NEREID_HTTP_RESTRICTED_API: 'nope:a=b' }, '')).rejects.toThrow(
      /^NEREID_HTTP_RESTRICTED_API: Bad option: "--http-restricted-api"/,
    )
    await expect(resolve({}, '\nload-model: [a]')).rejects.toThrow(
      /options-\d+\.yaml:2: Error: Use of '--load-model' requires/,
    )
    await expect(resolve({}, '\n\ngrpc-use-ssl: true\ngrpc-server-cert: c')).rejects.toThrow(
      /^Bad option: "--grpc-server-key"/,
    )
  })

  test('of a variable end a server with 1, before anything is opened', () => {
    const { code, stderr } = nereid(['--model-repository=/nowhere'], { NEREID_GRPC_PORT: 'x' })
    expect([code, stderr]).toEqual([
      1,
      expect.stringContaining('\nNEREID_GRPC_PORT: Bad option: "--grpc-port".\nInvalid option value. Got x\n'),
    ])
  })

  test.each<[string, string, RegExp]>([
    ['an unknown key', 'id: x\nhtp-port: 1', /:2: unrecognized option 'htp-port'; did you mean 'http-port'\?$/],
    ['a key with dashes', '--http-port: 1', /:1: unrecognized option '--http-port'; did you mean 'http-port'\?$/],
    ['a key in another case', 'httpPort: 1', /:1: unrecognized option 'httpPort'; did you mean 'http-port'\?$/],
    ['help', 'help: true', /:1: unrecognized option 'help'; a file cannot set it$/],
    ['another file', 'config: x', /:1: unrecognized option 'config'; a file cannot set it$/],
    ['a key that occurs twice', 'id: a\nhttp-port: 1\nid: b', /:3: id: is already set in line 1$/],
    ['a key and its older name', 'model-repository: a\nmodel-store: b', /:2: model-store: is already set in line 1$/],
    ['no value', 'http-port:\nid: x', /:1: http-port: has no value$/],
    ['null in a list', 'load-model:\n  - a\n  - ~', /:3: load-model: has no value$/],
    ['a list for one value', 'http-port:\n  - 1\n  - 2', /:2: http-port: a single value belongs here, not a list$/],
    ['a map for a value', 'http-port: { a: 1 }', /:1: http-port: a single value belongs here, not a map$/],
    ['a list in a list', 'load-model:\n  - a\n  - [b]', /:3: load-model: a single value belongs here, not a list$/],
    [
      'a value out of bounds',
      '\nreactor-threads: 2000',
      /:2: Bad option: "--reactor-threads"\.\nProvided option value is out of bound\. Got 2000/,
    ],
    ['a text for a number', 'http-port: many', /:1: Bad option: "--http-port"\.\nInvalid option value\. Got many$/],
    ['a list for a file', '- http-port: 1', /:1: a file of options must have lines such as http-port: 8000$/],
    ['a word for a file', 'http-port', /:1: a file of options must have lines such as http-port: 8000$/],
    ['flags for a file', '--http-port=1', /:1: a file of options must have lines such as http-port: 8000$/],
    [
      'two documents',
      'id: a\n---\nid: b',
      /:2: a second document begins here; a file of options must be a single document$/,
    ],
    [
      'an address of IPv6 without quotes',
      'id: x\nhttp-address: ::',
      /:2: Nested mappings are not allowed in compact mappings; a value with a colon may need quotes$/,
    ],
    [
      'the yes of older YAML',
      'allow-http: yes',
      /:1: Bad option: "--allow-http"\.\ninvalid value for bool option: yes; it is true or false$/,
    ],
    ['a quote that does not end', 'id: "a\n', /:\d: Missing closing "quote/],
    ['a tab that indents', 'load-model:\n\t- a', /:2: Tabs are not allowed as indentation/],
    ['a tag', 'id: !!binary aGk=', /:1: id: write the value without a tag \(!\)$/],
    ['a tag that is not known', 'id: !own x', /:1: Unresolved tag: !own$/],
    ['an alias', 'id: &a x\nlog-file: *a', /:2: log-file: write the value itself, aliases \(\*\) are not followed$/],
    ['a merge', 'id: x\n<<: { http-port: 1 }', /:2: unrecognized option '<<'$/],
    ['a map for a key', '? { a: 1 }\n: x', /:1: unrecognized option ''$/],
    ['a NUL byte', 'id: "a\\0b"', /:1: id: has a NUL byte$/],
    ['an escape sequence for a terminal', '"\\e[31m": 1', /:1: unrecognized option '\\u001B\[31m'$/],
  ])('of a file name it and the line: %s', async (_, content, text) => {
    await expect(readOptions([`--config=${file(content)}`], {})).rejects.toThrow(text)
  })

  test('values are read as on the command line, whatever YAML takes them for', async () => {
    const config = file(
      'unix-socket-mode: 0660\nid: 007\nallow-http: off\nallow-grpc: "false"\nlog-verbose: true\n' +
        'access-log-rate: .5\nmodel-repository: /one\ntrace-level: OFF\nhttp-port: "9000"\n# nothing else\n',
    )
    expect((await readOptions([`--config=${config}`], {})).options).toMatchObject({
      unixSocketMode: '0660',
      id: '007',
      allowHttp: false,
      allowGrpc: false,
      logVerbose: 1,
      accessLogRate: 0.5,
      modelRepository: ['/one'],
      traceLevel: ['OFF'],
      httpPort: 9000,
    })
    for (const empty of ['', '# nothing\n', '---\n', '\uFEFFid: triton'])
      expect((await readOptions([`--config=${file(empty)}`], {})).options.id).toBe('triton')
  })
})

describe('harmful files end the process with 1, at once and in little memory', () => {
  const many = (text: string, bytes: number): string => text.repeat(Math.floor(bytes / text.length))
  const bomb = (): string =>
    [
      'a0: &a0 [x, x, x, x, x, x, x, x, x, x]',
      ...Array.from({ length: 40 }, (_, i) => `a${i + 1}: &a${i + 1} [${Array(10).fill(`*a${i}`).join(', ')}]`),
    ].join('\n')
  const fifo = (): string => {
    const path = join(directory, 'fifo')
    execFileSync('mkfifo', [path])
    return path
  }
  const sparse = (): string => {
    const path = file('')
    truncateSync(path, 2 ** 40)
    return path
  }
  const HARMFUL: [string, () => string, RegExp][] = [
    ['aliases of aliases', () => file(bomb()), /:1: unrecognized option 'a0'/],
    ['aliases of aliases in a list', () => file(`load-model: &a [ *a, *a ]`), /:1: load-model: write the value itself/],
    ['a terabyte', sparse, /is too large for a file of options: 1099511627776 bytes, at most 65536 are read/],
    ['a byte too many', () => file(many('#', FILE_BYTES_MAX + 1)), /is too large for a file of options/],
    ['a file without an end', () => '/dev/zero', /\/dev\/zero: Not a regular file/],
    ['a directory', () => directory, /: Is a directory/],
    ['a FIFO', fifo, /fifo: Not a regular file/],
    [
      'bytes that are no text',
      () => file(new Uint8Array([0x7f, 0x45, 0x4c, 0x46, 0, 0xff, 0xfe])),
      /is not text in UTF-8/,
    ],
    ['NUL bytes', () => file(many('\0', 1000)), /:1: /],
    ['brackets', () => file(many('[', FILE_BYTES_MAX)), /nested too deep|:\d+: /],
    ['braces', () => file(many('{', FILE_BYTES_MAX)), /nested too deep|:\d+: /],
    ['lists in lists', () => file(many('- ', FILE_BYTES_MAX)), /nested too deep|:\d+: /],
    ['keys of keys', () => file(many('? ', FILE_BYTES_MAX)), /nested too deep|:\d+: /],
    ['quotes', () => file(many('"', FILE_BYTES_MAX)), /:1: /],
    [
      'many keys',
      () =>
        file(
          Array.from({ length: 6000 }, (_, i) => `k${i}: 1`)
            .join('\n')
            .slice(0, FILE_BYTES_MAX),
        ),
      /:1: unrecognized option 'k0'/,
    ],
    ['the same key again and again', () => file(many('id: x\n', FILE_BYTES_MAX)), /:2: id: is already set in line 1/],
    ['a long list', () => file(`load-model: [${many('a,', FILE_BYTES_MAX - 100)}]`), /Use of '--load-model' requires/],
    ['a long key', () => file(`${many('x', 1000)}: 1`), /:1: unrecognized option 'x{100}'/],
  ]
  test.each(HARMFUL)('%s', (_, path, text) => {
    const config = path()
    const from = performance.now()
    const ran = spawnSync(
      process.execPath,
      ['--max-old-space-size=512', MAIN, '--model-repository=/nowhere', `--config=${config}`],
      { encoding: 'utf8', timeout: 60_000, env: CLEAN },
    )
    expect([ran.status, ran.stderr.split('\n').slice(1).join('\n')]).toEqual([1, expect.stringMatching(text)])
    expect(ran.stderr.length).toBeLessThan(2000)
    expect(performance.now() - from).toBeLessThan(30_000)
  })
})

describe('nereid config', () => {
  const config = file(
    'model-repository:\n  - /m\n  - "a b: #c"\nhttp-restricted-api:\n  - health:key=topsecret\ncache-config: ' +
      'redis,host=h,port=1,password=topsecret,db=1\ngrpc-restricted-protocol: health:a=topsecret=x\n',
  )
  const variables = {
    NEREID_CONFIG: config,
    NEREID_LOG_FORMAT: 'json',
    NEREID_OIDC_KEYS: 'https://user:topsecret@idp/keys',
    NEREID_BACKEND_CONFIG: 'own,api_token=topsecret',
  }

  test('prints every option with its source', () => {
    const { code, stdout, stderr } = nereid(['config', '--http-port=9'], { ...variables, NEREID_OIDC_KEYS: '' })
    expect([code, stderr]).toEqual([0, ''])
    for (const { name, outside } of TABLE)
      if (outside !== 'nowhere') expect(stdout).toMatch(new RegExp(`^(?:# )?${name}:`, 'm'))
    for (const line of [
      'http-port: 9  # command line',
      'log-format: json  # NEREID_LOG_FORMAT',
      `model-repository:  # ${config}:1\n  - /m\n  - "a b: #c"`,
      '# grpc-port: 8001  # default',
      '# load-model:  # default',
      `# config: ${config}  # NEREID_CONFIG`,
      `# http-restricted-api:  # ${config}:4\n#   - "health:key=********"`,
    ])
      expect(stdout).toContain(`\n${line}\n`.slice(line.startsWith('# config') ? 1 : 0))
  })

  test('masks secrets, as text and as JSON', () => {
    const { stdout } = nereid(['config'], variables)
    const json = nereid(['config', '--format=json'], variables)
    for (const text of [stdout, json.stdout]) expect(text).not.toContain('topsecret')
    const rows = JSON.parse(json.stdout) as { name: string; value: unknown; from: string; isMasked: boolean }[]
    expect(rows.filter((row) => row.isMasked).map((row) => [row.name, row.value])).toEqual([
      ['oidc-keys', 'https://********@idp/keys'],
      ['http-restricted-api', ['health:key=********']],
      ['grpc-restricted-protocol', ['health:a=********']],
      ['backend-config', ['own,api_token=********']],
      ['cache-config', ['redis,host=h,port=1,password=********']],
    ])
    expect(rows.find((row) => row.name === 'log-format')).toEqual({
      name: 'log-format',
      value: 'json',
      from: 'NEREID_LOG_FORMAT',
      isMasked: false,
    })
  })

  test('prints a file with the same options', async () => {
    const flags = [
      '--model-repository=a: b',
      '--model-repository=- "c" #',
      '--id=',
      '--id=yes',
      '--unix-socket-mode=0600',
      '--access-log-rate=0.25',
      '--exit-on-error=off',
      '--disable-auto-complete-config',
      '--log-verbose=true',
      '--trace-config=rate=7',
      '--log-file=\u0007\n',
    ]
    const again = file(nereid(['config', ...flags]).stdout)
    const fromFlags = await readOptions(flags, {})
    const read = await readOptions([`--config=${again}`], {})
    expect({ ...read.options, config: '' }).toEqual(fromFlags.options)
    expect([...read.given.keys()].toSorted()).toEqual(['config', ...fromFlags.given.keys()].toSorted())
  })

  test('ends with 1 when a server would not start with it', () => {
    expect(nereid(['config', '--load-model=a'])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("Use of '--load-model' requires") as string,
    })
    expect(nereid(['config'], { NEREID_HTTP_PORT: 'x' })).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('NEREID_HTTP_PORT: Bad option') as string,
    })
    expect(nereid(['config', 'x'])).toMatchObject({ code: 1, stdout: '', stderr: 'Unexpected argument: x\n' })
    expect(nereid(['config', '--help']).stdout).toBe(nereid(['help', 'config']).stdout)
  })
})
