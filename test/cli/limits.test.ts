import { expect, test } from 'vitest'
import type { Options } from '../../src/cli/flags.js'
import { parseArguments } from '../../src/cli/parse.js'
import { readRateLimit } from '../../src/cli/rate_limit.js'
import { readResponseCache } from '../../src/cli/response_cache.js'
import { resolveSettings } from '../../src/cli/settings.js'

const options = (...args: string[]): Options => parseArguments(args).options

test.each([
  [[], null],
  [['--cache-config=local,size=1048576'], 1048576],
  [['--cache-config=local,size=1', '--cache-config=local,size=2'], 2],
  [['--cache-config=local,other=x', '--cache-config=local,size=0'], 0],
  [['--response-cache-byte-size=0'], null],
  [['--response-cache-byte-size=200'], 200],
])('S-38: %j asks for a cache of %j bytes', (args, expected) => {
  expect(readResponseCache(options(...args), [])).toEqual({ bytes: expected, redis: null, library: null })
})

const NO_SIZE = "Failed to initialize LocalCache: config didn't contain a valid 'size' field."
const NO_CACHE = 'No cache specified. --cache-config option format is <cache name>,<setting>=<value>. Got '
const NO_SETTING = "--cache-config option format is '<cache name>,<setting>=<value>'. Got "

test.each([
  [['--cache-config=size=1'], `${NO_CACHE}size=1`],
  [['--cache-config=size=1,2'], `${NO_CACHE}size=1,2`],
  [['--cache-config=local'], `${NO_CACHE}local`],
  [['--cache-config=,size=1'], `${NO_CACHE},size=1`],
  [['--cache-config=local,size'], `${NO_SETTING}local,size`],
  [['--cache-config=local,=1'], `${NO_SETTING}local,=1`],
  [['--cache-config=local,size='], `${NO_SETTING}local,size=`],
  [['--cache-config=local,x=1'], NO_SIZE],
  [['--cache-config=local,size=1x'], NO_SIZE],
  [['--cache-config=local,size=-1'], NO_SIZE],
  [['--cache-config=local,size=99999999999999999999'], NO_SIZE],
  [
    ['--cache-config=local,size=1', '--cache-config=redis,host=a'],
    'found multiple cache configurations, but only a single cache is currently supported',
  ],
  [
    ['--cache-config=local,size=1', '--response-cache-byte-size=1'],
    'Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide ' +
      'one or the other.',
  ],
])('S-38: %j is refused', (args, text) => {
  expect(() => readResponseCache(options(...args), [])).toThrow(text)
  expect(() => resolveSettings(parseArguments(['--model-repository=/m', ...args]))).toThrow(text)
})

test('R-54: the deprecated size of the cache works and warns', () => {
  const { warnings } = resolveSettings(parseArguments(['--model-repository=/m', '--response-cache-byte-size=5']))
  expect(warnings).toEqual([
    "Warning: '--response-cache-byte-size' has been deprecated! Please use '--cache-config=local,size=5' instead.",
  ])
})

const REDIS = {
  host: 'h',
  port: 6379,
  user: null,
  password: null,
  database: 0,
  connectTimeoutMs: 1000,
  socketTimeoutMs: 1000,
  waitTimeoutMs: 100,
  poolSize: 1,
}

test.each([
  [['--cache-config=redis,host=h', '--cache-config=redis,port=6379'], REDIS],
  [['--cache-config=redis,host=h,port=6379'], REDIS],
  [
    ['--cache-config=redis,host=h,port=6379,password=a=b,c,user=u,pool_size=4'],
    { ...REDIS, user: 'u', password: 'a=b,c', poolSize: 4 },
  ],
  [
    [
      '--cache-config=redis,host=h,port=6379,db=3,connect_timeout=20,socket_timeout=30,wait_timeout=40,tls_enabled=false',
    ],
    { ...REDIS, database: 3, connectTimeoutMs: 20, socketTimeoutMs: 30, waitTimeoutMs: 40 },
  ],
  [
    ['--cache-config=redis,host=h,port=6379,connect_timeout=0,socket_timeout=0,wait_timeout=0'],
    { ...REDIS, waitTimeoutMs: 1000 },
  ],
])('S-39: %j asks for a Redis', (args, expected) => {
  expect(readResponseCache(options(...args), [])).toEqual({ bytes: null, redis: expected, library: null })
})

const NO_ADDRESS =
  "Failed to initialize RedisCache, didn't specify address. Must at a minimum specify 'host' and 'port' in " +
  'the configuration'
const NO_TLS = 'is not in this release; put a TLS proxy such as stunnel beside the server and name its address'

test.each([
  ['host=h', NO_ADDRESS],
  ['port=6379', NO_ADDRESS],
  [
    'host=h,port=0',
    "failed to connect to Redis (h:0): Connection refused; 'port' has to be a number from 1 to 65535, got '0'",
  ],
  ['host=h,port=70000', "RedisCache: 'port' has to be a number from 1 to 65535, got '70000'"],
  [
    'host=localhost,port=nonexistent',
    "Failed to initialize RedisCache: failed to connect to Redis (localhost:0): Connection refused; 'port' " +
      "has to be a number from 1 to 65535, got 'nonexistent'",
  ],
  ['host=h,port=6379,pasword=hunter2', "'port' has to be a number from 1 to 65535, got '6379,…'"],
  ['host=h,pasword=hunter2,port=6379', "'host' has to be a name or an address, got 'h,…'"],
  ['host=h,port=1,pool_size=65', "'pool_size' has to be a number from 1 to 64, got '65'"],
  ['host=h,port=1,wait_timeout=60001', "'wait_timeout' has to be a number from 0 to 60000, got '60001'"],
  ['host=h,port=1,socket_timeout=-1', "'socket_timeout' has to be a number from 0 to 60000, got '-1'"],
  ['host=h,port=1,tls_enabled=true', `TLS ('tls_enabled') ${NO_TLS}`],
  [
    'host=h,port=1,cert=a,key=b,cacert=c,cacert_dir=d,sni=e',
    `TLS ('cert', 'key', 'cacert', 'cacert_dir', 'sni') ${NO_TLS}`,
  ],
])('S-39: a Redis with %s is refused', (settings, text) => {
  expect(() => readResponseCache(options(`--cache-config=redis,${settings}`), [])).toThrow(text)
})

test('S-39: an unknown Redis setting is reported, and an unknown cache rejected', () => {
  const warnings: string[] = []
  readResponseCache(options('--cache-config=redis,host=h,port=1', '--cache-config=redis,ttl=5'), warnings)
  expect(warnings).toEqual(["Warning: the response cache 'redis' has no setting 'ttl'"])
  expect(() => readResponseCache(options('--cache-config=memcached,host=a'), [])).toThrow(
    "unable to find the cache 'memcached'",
  )
})
test.each([
  [[], null],
  [['--rate-limit=off', '--rate-limit-resource=R:1'], null],
  [['--rate-limit=EXECUTION_COUNT'], []],
  [
    [
      '--rate-limit=execution_count',
      '--rate-limit-resource=R1:10',
      '--rate-limit-resource=R2:3:1',
      '--rate-limit-resource=:0',
    ],
    [
      { name: 'R1', count: 10, device: null },
      { name: 'R2', count: 3, device: 1 },
      { name: '', count: 0, device: null },
    ],
  ],
])('S-35: %j limits', (args, expected) => {
  expect(readRateLimit(options(...args))).toEqual(expected)
})

const FORM =
  "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or '<resource_name>:<count>'. Got "

test.each([
  ['R', `${FORM}R`],
  ['R:1:2:3', `${FORM}R:1:2:3`],
  ['R:', 'Invalid option value. Got '],
  ['R:x', 'Invalid option value. Got x'],
  ['R:1:', 'Invalid option value. Got '],
  ['R:1.5', 'Invalid option value. Got 1.5'],
  ['R:-1', 'Provided option value is out of bound. Got -1'],
  ['R:1:-1', 'Provided option value is out of bound. Got -1'],
  ['R:2147483648', 'Provided option value is out of bound. Got 2147483648'],
])('S-35: a resource %j is refused, also while nothing is limited', (resource, text) => {
  expect(() => resolveSettings(parseArguments(['--model-repository=/m', `--rate-limit-resource=${resource}`]))).toThrow(
    text,
  )
})

test('--text-alias names models of text endpoints; --openai-errors sets their errors', () => {
  const aliases = ['small=minilm,tokens=cl100k_base', 'BAAI/bge-m3=bge:3', 'a=minilm']
  const args = ['--model-repository=/m', '--openai-errors=triton', ...aliases.map((text) => `--text-alias=${text}`)]
  const { core, listen } = resolveSettings(parseArguments(args)).settings
  expect(core.engine.textAliases).toEqual([
    { alias: 'small', model: 'minilm', tokens: 'cl100k_base' },
    { alias: 'BAAI/bge-m3', model: 'bge:3', tokens: '' },
    { alias: 'a', model: 'minilm', tokens: '' },
  ])
  expect(listen.openaiErrorsAsTriton).toBe(true)
  const usual = resolveSettings(parseArguments(['--model-repository=/m'])).settings
  expect([usual.core.engine.textAliases, usual.listen.openaiErrorsAsTriton]).toEqual([[], false])
})

const ALIAS_FORM =
  "--text-alias option format is '<name>=<model>[:<version>][,tokens=own|cl100k_base|o200k_base]'. Got "

test.each([
  [['a'], `${ALIAS_FORM}a`],
  [['a='], `${ALIAS_FORM}a=`],
  [['a=m:0'], `${ALIAS_FORM}a=m:0`],
  [['a=m,tokens='], `${ALIAS_FORM}a=m,tokens=`],
  [['a=m,token=own'], `${ALIAS_FORM}a=m,token=own`],
  [['a b=m'], '--text-alias=a b=m: an alias has 1 to 256 letters of ASCII, digits and any of _./:@+-'],
  [['a=m,tokens=cl100k'], "tokens of an alias are own, cl100k_base, o200k_base, got 'cl100k'"],
  [['a=m', 'a=n:2'], "The alias 'a' is given to 'm' and 'n:2'; keep one of them"],
])('the alias %j is refused', (aliases, text) => {
  const args = aliases.map((alias) => `--text-alias=${alias}`)
  expect(() => resolveSettings(parseArguments(['--model-repository=/m', ...args]))).toThrow(text)
})

test('M-27 M-28 memory of GPUs is limited by device, the last one given counts', () => {
  const { deviceMemory } = resolveSettings(
    parseArguments([
      '--model-repository=/m',
      '--cuda-memory-pool-byte-size=0:1024',
      '--cuda-memory-pool-byte-size=1:0',
      '--model-load-gpu-limit=0:.5',
      '--model-load-gpu-limit=3:1',
      '--enable-peer-access=false',
      '--pinned-region-byte-size=7',
    ]),
  ).settings.core
  expect(deviceMemory).toEqual({
    pinnedPoolBytes: 268435456,
    devicePools: [
      { device: 0, bytes: 1024 },
      { device: 1, bytes: 0 },
    ],
    lockedRegionBytesMax: 7,
    loadLimits: [
      { device: 0, fraction: 0.5 },
      { device: 3, fraction: 1 },
    ],
    peerAccess: false,
  })
})

test.each([
  ['--cuda-memory-pool-byte-size=1024', "option format is '<GPU device>:<bytes>'. Got 1024"],
  ['--cuda-memory-pool-byte-size=0:1:2', "option format is '<GPU device>:<bytes>'. Got 0:1:2"],
  ['--cuda-memory-pool-byte-size=-1:1', 'Got -1:1'],
  ['--cuda-memory-pool-byte-size=0:1e3', 'Got 0:1e3'],
  ['--cuda-memory-pool-byte-size=0:99999999999999999999', 'out of bound. Got 0:99999999999999999999'],
  ['--cuda-memory-pool-byte-size=1024:1', 'out of bound. Got 1024:1'],
  ['--model-load-gpu-limit=0:1.1', 'in the range [0.0, 1.0]. Got 0:1.1'],
  ['--model-load-gpu-limit=0:half', "option format is '<GPU device>:<fraction>'. Got 0:half"],
  ['--model-load-gpu-limit=0:', 'Got 0:'],
])('M-28: %s is refused', (argument, text) => {
  expect(() => resolveSettings(parseArguments(['--model-repository=/m', argument]))).toThrow(text)
})
