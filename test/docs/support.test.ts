/** docs/support.md is made from manifests, the platforms with a package, the image and the specification. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { TARGETS } from '../../scripts/package/targets.mjs'
import { SERVER_VERSION } from '../../src/api/identity.js'
import { ROOT, textOf } from './pages.js'

const read = textOf

/** The match of a pattern in a file of the repository. */
function fact(file: string, pattern: RegExp): string {
  const found = pattern.exec(read(file))?.[1]
  if (found === undefined) throw new Error(`${file} does not say ${pattern}`)
  return found
}

const manifest = JSON.parse(read('package.json')) as {
  version: string
  engines: { node: string }
  dependencies: Record<string, string>
  keywords: string[]
}
const FACTS = {
  nereid: manifest.version,
  node: manifest.engines.node.replace('>=', ''),
  onnxruntime: manifest.dependencies['onnxruntime-node'] ?? '',
  rust: fact('Cargo.toml', /^rust-version = "([\d.]+)"$/m),
  python: fact('shm/python/pyproject.toml', /^requires-python = ">=([\d.]+)"$/m),
  releases: fact('docs/spec/protocol.md', /with releases (\d\d\.\d\d to \d\d\.\d\d) checked for differences/),
  cuda: fact('images/Containerfile', /'nvidia-cuda-runtime~=(\d+)\.0'/),
  cudnn: fact('images/Containerfile', /'nvidia-cudnn-cu\d+~=(\d+)\.0'/),
  olderCuda: fact('docs/gpu.md', /^\| the same for CUDA (\d+), for drivers before \d+ \|/m),
  driver: fact('docs/gpu.md', /^\| the same for CUDA \d+, for drivers before (\d+) \|/m),
}
const linux = TARGETS.filter(({ name }) => name.startsWith('linux-'))
const names = (targets: typeof TARGETS) => targets.map(({ name }) => name.split('-')[1]).join(' and ')
const glibc = new Set(linux.map((target) => target.glibc))
const checked = `releases ${FACTS.releases} were checked for [differences](../COMPAT.md)`

const PAGE = `# What is supported

<!-- Made by test/docs/support.test.ts from package.json, Cargo.toml, the platforms of the packages, the image and docs/spec; run the tests of test/docs with \`-u\` after a change. -->

This page lists the platforms and versions that this release supports.

| what | version | notes |
|---|---|---|
| Nereid | ${FACTS.nereid} | not released yet: [changes](../CHANGELOG.md) |
| Triton | ${SERVER_VERSION} | the API that the server reports; ${checked} |
| Linux | ${names(linux)} | glibc ${[...glibc].join(', ')} or newer: Debian 10, Ubuntu 20.04, RHEL 8 |
| Alpine | no | ONNX Runtime has no build for musl |
| macOS | ${names(TARGETS.filter(({ name }) => name.startsWith('darwin-')))} | 14 or newer, for development |
| Node | ${FACTS.node} or newer | for the server and the [client](client.md), which also runs in browsers |
| ONNX Runtime | ${FACTS.onnxruntime} | is in the package; \`--backend-config=onnxruntime,library=PATH\` loads another |
| Python | ${FACTS.python} or newer | for [models in Python](python.md), with numpy, and for the [wheel](python.md#from-python-without-node) |
| CUDA | ${FACTS.cuda} | with cuDNN ${FACTS.cudnn}; the image \`gpu\` has both. Run on an NVIDIA H200: [what has not passed](../COMPAT.md#not-passed-on-a-gpu) |
| CUDA | ${FACTS.olderCuda} | for drivers before ${FACTS.driver}, with an older ONNX Runtime: [GPUs](gpu.md) |

## To build a clone and to test it

| what | for | how to get it |
|---|---|---|
| Node ${FACTS.node} or newer | everything | [nodejs.org](https://nodejs.org) |
| Rust ${FACTS.rust} or newer, a C compiler | the native module | [rustup.rs](https://rustup.rs), \`apt-get install gcc libc6-dev\` |
| Python ${FACTS.python} or newer with numpy | models in Python | \`python3 -m pip install numpy\` |
| Python 3.10 or newer with \`venv\` | \`npm test\` | \`apt-get install python3 python3-venv\` |
| Valgrind | the suite \`guard\` of \`npm test\`, which is skipped without it, and fails if \`CI\` is set | \`apt-get install valgrind\` |
| Go | the suite \`h2spec\`, which is skipped without it | \`apt-get install golang\` |
| Miri | the suite \`miri\`, which is skipped without it | \`rustup toolchain install nightly --component miri,rust-src\` |
`

test('docs/support.md matches the files that decide it', async () => {
  expect(glibc.size).toBe(1)
  await expect(PAGE).toMatchFileSnapshot(join(ROOT, 'docs/support.md'))
})

test('other files say the same versions', () => {
  expect(read('README.md')).toContain(`Node ${FACTS.node} or newer, on Linux with glibc ${[...glibc].join()} or newer`)
  expect(fact('client/package.json', /"node": ">=(\d+)"/)).toBe(FACTS.node)
  expect(fact('client/package.json', /"version": "([\d.]+)"/)).toBe(FACTS.nereid)
  expect(fact('Cargo.toml', /^version = "([\d.]+)"$/m)).toBe(FACTS.nereid)
  expect(fact('images/Containerfile', /onnxruntime-gpu==([\d.]+)/)).toBe(FACTS.onnxruntime)
  expect(fact('docs/gpu.md', /onnxruntime-gpu\[cuda,cudnn\]==([\d.]+)/)).toBe(FACTS.onnxruntime)
  expect(read('docs/gpu.md')).toContain(`CUDA ${FACTS.cuda} and cuDNN ${FACTS.cudnn}`)
  expect(read('docs/python.md')).toContain(`in any CPython from ${FACTS.python} on`)
  expect(read('docs/start.md')).toContain(`Rust ${FACTS.rust} or newer`)
})

test('the packages have words to be found by', () => {
  expect(manifest.keywords).toContain('inference')
  expect((JSON.parse(read('client/package.json')) as { keywords: string[] }).keywords).toContain('tritonclient')
})
