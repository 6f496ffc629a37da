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
  [['--cache-config=redis,host=a', '--cache-config=redis,password=a=b,c'], null],
])('S-38: %j asks for a cache of %j bytes', (args, expected) => {
  expect(readResponseCache(options(...args), [])).toEqual(expected)
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
  [['--cache-config=local,size=1k'], NO_SIZE],
  [['--cache-config=local,size=-1'], NO_SIZE],
  [['--cache-config=local,size=99999999999999999999'], NO_SIZE],
  [['--cache-config=local,size=1', '--cache-config=redis,host=a'], 'found multiple cache configurations, but only a single cache is currently supported'],
  [
    ['--cache-config=local,size=1', '--response-cache-byte-size=1'],
    'Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. Please provide one or the other.',
  ],
])('S-38: %j is refused', (args, text) => {
  expect(() => readResponseCache(options(...args), [])).toThrow(text)
  expect(() => resolveSettings(parseArguments(['--model-repository=/m', ...args]))).toThrow(text)
})

test('R-54: the deprecated size of the cache works and says so', () => {
  const { warnings } = resolveSettings(parseArguments(['--model-repository=/m', '--response-cache-byte-size=5']))
  expect(warnings).toEqual([
    "Warning: '--response-cache-byte-size' has been deprecated! Please use '--cache-config=local,size=5' instead.",
  ])
})

test('S-39: a cache that is not in this release is told', () => {
  const { warnings } = resolveSettings(parseArguments(['--model-repository=/m', '--cache-config=redis,host=a']))
  expect(warnings).toEqual(["Warning: the response cache 'redis' is not in this release, which has 'local': nothing is cached."])
})

test.each([
  [[], null],
  [['--rate-limit=off', '--rate-limit-resource=R:1'], null],
  [['--rate-limit=EXECUTION_COUNT'], { resources: [] }],
  [
    ['--rate-limit=execution_count', '--rate-limit-resource=R1:10', '--rate-limit-resource=R2:3:1', '--rate-limit-resource=:0'],
    {
      resources: [
        { name: 'R1', count: 10, device: null },
        { name: 'R2', count: 3, device: 1 },
        { name: '', count: 0, device: null },
      ],
    },
  ],
])('S-35: %j limits', (args, expected) => {
  expect(readRateLimit(options(...args))).toEqual(expected)
})

const FORM = "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or '<resource_name>:<count>'. Got "

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
  expect(() => resolveSettings(parseArguments(['--model-repository=/m', `--rate-limit-resource=${resource}`]))).toThrow(text)
})
