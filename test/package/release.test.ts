/**
 * A dry run of .github/workflows/release.yml: the order of its jobs, what each may do, the files and options that its
 * scripts name, and the scripts themselves where a network and a container tool are not needed.
 */
import { execFileSync, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs, type ParseArgsConfig } from 'node:util'
import { afterAll, expect, test } from 'vitest'
import { OPTIONS as BILLS } from '../../scripts/package/bills.mjs'
import { OPTIONS as PUBLISH } from '../../scripts/package/publish.mjs'
import { OPTIONS as PACKAGE } from '../../scripts/package/run.mjs'
import { SBOM, clientBill, document, mainBill } from '../../scripts/package/sbom.mjs'
import { TARGETS, packageName } from '../../scripts/package/targets.mjs'
import { ROOT, TestServer } from '../server/harness.js'
import { WORKFLOWS, before, runScript, script, workflow, type Step } from './workflow.js'

const RELEASE = workflow('release.yml')
const JOBS = Object.entries(RELEASE.jobs)
const PUBLISHING = JOBS.filter(([name]) => name.startsWith('publish-')).map(([name]) => name)
const VERSION = (JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }).version

const root = mkdtempSync(join(tmpdir(), 'nereid-release-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

/** A directory with the scripts of this clone, in which a step of the workflow can write. */
function clone(name: string): string {
  const directory = join(root, name)
  for (const path of ['scripts', 'Cargo.toml', 'package.json', 'client/package.json', 'shm/python/pyproject.toml'])
    cpSync(join(ROOT, path), join(directory, path), { recursive: true })
  const changes = readFileSync(join(ROOT, 'CHANGELOG.md'), 'utf8')
  writeFileSync(join(directory, 'CHANGELOG.md'), changes.replace(/^## .*$/m, `## ${VERSION}, 2027-01-31`))
  return directory
}

/** Puts a program in the place of one that is not here; it writes its arguments to the file of `$CALLS`. */
function stub(directory: string, name: string, lines = ''): Record<string, string> {
  const bin = join(directory, 'bin')
  mkdirSync(bin, { recursive: true })
  writeFileSync(join(bin, name), `#!/bin/bash\necho "$*" >> "$CALLS"\n${lines}\n`)
  chmodSync(join(bin, name), 0o755)
  return { PATH: `${bin}:${process.env['PATH']}`, CALLS: join(directory, 'calls') }
}

const calls = (directory: string) => readFileSync(join(directory, 'calls'), 'utf8').trim().split('\n')

const stepsOf = (job: { steps: Step[] }, action: string) =>
  job.steps.filter(({ uses }) => uses?.startsWith(`${action}@`))

/** The text of a scalar for each combination of a job's matrix. */
function expanded(value: unknown, matrix: Record<string, unknown[]> = {}): string[] {
  const rows = (matrix['include'] ?? []) as Record<string, string>[]
  const found = rows.map((row) =>
    String(value).replaceAll(/\$\{\{ matrix\.(\w+) \}\}/g, (_, name: string) => row[name] ?? `no ${name}`),
  )
  return [...new Set(found.length === 0 ? [String(value)] : found)]
}

test('every action is a commit, with its version beside it, the same in each place', () => {
  const pins = new Map<string, string>()
  for (const { text, jobs } of WORKFLOWS) {
    const lines = text.split('\n').filter((line) => /\buses:/.test(line))
    expect(lines).toHaveLength(Object.values(jobs).flatMap(({ steps }) => steps.filter(({ uses }) => uses)).length)
    for (const line of lines) {
      const [, action = '', pin = ''] = /uses: ([\w-]+\/[\w-]+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)$/.exec(line) ?? []
      expect(action, line).not.toBe('')
      expect(pins.get(action) ?? pin, action).toBe(pin)
      pins.set(action, pin)
    }
  }
  expect(pins.size).toBeGreaterThan(0)
})

test('a job may read, one that publishes has what it needs, and none has a secret', () => {
  for (const { file, permissions, jobs, text } of WORKFLOWS) {
    expect(permissions, file).toEqual({})
    expect(text, file).not.toMatch(/secrets\b|continue-on-error|always\(\)|pull_request_target/)
    for (const [name, job] of Object.entries(jobs)) {
      expect(job['timeout-minutes'], name).toBeGreaterThan(0)
      const checkouts = stepsOf(job, 'actions/checkout')
      for (const { with: options } of checkouts) expect(options, name).toEqual({ 'persist-credentials': false })
      const { contents, ...more } = job.permissions ?? {}
      expect(contents, name).toBe(checkouts.length > 0 ? 'read' : undefined)
      if (!PUBLISHING.includes(name)) expect(more, name).toEqual({})
    }
  }
  const rights = Object.fromEntries(
    JOBS.map(([name, { permissions, environment }]) => [name, { permissions, environment }]),
  )
  expect(rights['publish-npm']).toEqual({ permissions: { contents: 'read', 'id-token': 'write' }, environment: 'npm' })
  expect(rights['publish-pypi']).toEqual({ permissions: { 'id-token': 'write' }, environment: 'pypi' })
  expect(rights['publish-images']).toEqual({ permissions: { packages: 'write' }, environment: 'images' })
  expect(PUBLISHING).toHaveLength(3)
})

test('nothing is published before every other job has passed, on both architectures', () => {
  const others = JOBS.map(([name]) => name).filter((name) => !PUBLISHING.includes(name))
  for (const name of PUBLISHING) expect([...before(RELEASE, name)].toSorted(), name).toEqual(others.toSorted())
  for (const name of ['test', 'images']) expect([...before(RELEASE, name)], name).toEqual(['build'])
  expect(RELEASE.jobs['test']?.strategy?.matrix['runner']).toEqual(['ubuntu-24.04', 'ubuntu-24.04-arm'])
  const machines = RELEASE.jobs['images']?.strategy?.matrix['include'] as { runner: string; machine: string }[]
  expect(machines.map(({ machine }) => machine)).toEqual(['x64', 'arm64'])
})

test('an artefact is uploaded before it is downloaded, and only bills stay', () => {
  const uploads = new Map<string, string>()
  for (const [job, { steps, strategy }] of JOBS) {
    for (const step of stepsOf({ steps }, 'actions/upload-artifact')) {
      expect(step.with?.['if-no-files-found'], job).toBe('error')
      for (const name of expanded(step.with?.['name'], strategy?.matrix)) {
        expect(uploads.has(name), name).toBe(false)
        uploads.set(name, job)
      }
    }
  }
  const downloaded = new Set<string>()
  for (const [job, { steps }] of JOBS) {
    for (const step of stepsOf({ steps }, 'actions/download-artifact')) {
      const name = String(step.with?.['name'])
      expect(before(RELEASE, job).has(uploads.get(name) ?? ''), `${job} downloads ${name}`).toBe(true)
      downloaded.add(name)
    }
  }
  const rest = [...uploads.keys()].filter((name) => !downloaded.has(name))
  expect(rest).toEqual(['bills', 'bills-images-x64', 'bills-images-arm64'])
  // The action takes everything in its directory for a package of Python.
  const pypi = RELEASE.jobs['publish-pypi']
  const [wheels] = stepsOf(pypi ?? { steps: [] }, 'actions/download-artifact')
  const [upload] = stepsOf(pypi ?? { steps: [] }, 'pypa/gh-action-pypi-publish')
  expect(wheels?.with).toEqual({ name: 'wheels', path: upload?.with?.['packages-dir'] })
})

/** The commands of a workflow's scripts, one a line. */
const commandsOf = ({ run = '' }: Step) =>
  run
    .replaceAll(/\\\n\s*/g, ' ')
    .split('\n')
    .flatMap((line) => line.split(/\s\|\s/))

type Options = NonNullable<ParseArgsConfig['options']>
const SCRIPTS: Record<string, Options> = {
  'scripts/package/bills.mjs': BILLS as Options,
  'scripts/package/publish.mjs': PUBLISH as Options,
  'scripts/package/run.mjs': PACKAGE as Options,
  'scripts/package/version.mjs': {},
  'scripts/models/examples.mjs': {},
}

test('each script parses, and takes what an expression gives from its environment only', () => {
  let count = 0
  for (const { file, jobs } of WORKFLOWS) {
    for (const step of Object.values(jobs).flatMap(({ steps }) => steps)) {
      if (step.run === undefined) continue
      const done = spawnSync('bash', ['-n', '-c', step.run], { encoding: 'utf8' })
      expect(done.status, `${file}: ${step.run}\n${done.stderr}`).toBe(0)
      expect(step.run, file).not.toContain('${{')
      count += 1
    }
  }
  expect(count).toBeGreaterThanOrEqual(12)
  // Without it a failure at the head of a pipe is not seen.
  expect(RELEASE.defaults?.run.shell).toBe('bash')
})

test('each file, command and option that a script names exists here', () => {
  const scripts = (JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: Record<string, string> })
    .scripts
  const stages = readFileSync(join(ROOT, 'images/Containerfile'), 'utf8').matchAll(/^FROM \S+ AS (\w+)$/gm)
  const images = [...stages].map(([, name]) => name)
  const suites = readFileSync(join(ROOT, 'docs/internals/suites.md'), 'utf8')
  const flags = readFileSync(join(ROOT, 'scripts/test.mjs'), 'utf8')
  const used = new Set<string>()
  for (const job of WORKFLOWS.flatMap(({ jobs }) => Object.values(jobs))) {
    const there = stepsOf(job, 'actions/download-artifact').map((step) => String(step.with?.['path']))
    for (const command of job.steps.flatMap(commandsOf)) {
      // Paths of this clone; those below what was downloaded or is written have another first part.
      for (const [, path = ''] of command.matchAll(/(?<![\w/."$=-])((?:scripts|images|test|client|shm)\/[\w./-]+)/g))
        if (!there.includes(path.split('/')[0] ?? '')) expect(existsSync(join(ROOT, path)), path).toBe(true)
      if (command.includes('docker build ')) expect(images).toContain(/--target (\w+)/.exec(command)?.[1])
      const [, name, rest = ''] = /\bnpm run ([\w:-]+) -- (.*)$/.exec(command) ?? []
      const [, path = /^node (\S+)$/.exec(scripts[name ?? ''] ?? '')?.[1], words = rest] =
        /\bnode (scripts\/\S+)(.*)$/.exec(command) ?? []
      if (path !== undefined) {
        const options = SCRIPTS[path]
        expect(options, path).toBeDefined()
        const args = words.split(/\s+[<>]/)[0]?.match(/[^\s"]+(?:"[^"]*")?|"[^"]*"/g) ?? []
        const { values } = parseArgs({ args, options: options ?? {}, allowPositionals: true })
        for (const one of [values['target'] ?? []].flat()) expect(TARGETS.map((known) => known.name)).toContain(one)
        used.add(path)
      }
      const [, suite, ...given] = /\bnpm test -- (\S+)(.*)$/.exec(command) ?? []
      if (suite === undefined) continue
      expect(suites).toContain(`| \`${suite}\` |`)
      for (const [flag] of given.join(' ').matchAll(/--\w+=?/g)) expect(flags, flag).toContain(` * ${flag}`)
    }
  }
  expect([...used].toSorted()).toEqual(Object.keys(SCRIPTS).toSorted())
})

test('every platform is built, and Rust has its library', () => {
  const packages = script(RELEASE, 'build', 'Packages')
  expect([...packages.matchAll(/--target=(\S+)/g)].map(([, name]) => name)).toEqual(TARGETS.map(({ name }) => name))
  const [, triples = ''] = /rustup target add (.*)/.exec(script(RELEASE, 'build', 'Rust')) ?? []
  expect(triples.split(' ')).toEqual(TARGETS.map(({ triple }) => triple))
})

test('Rust has the version of Cargo.toml', async () => {
  const [, version] = /^rust-version = "([\d.]+)"$/m.exec(readFileSync(join(ROOT, 'Cargo.toml'), 'utf8')) ?? []
  for (const [file, job] of [
    ['release.yml', 'build'],
    ['c-abi.yml', 'test'],
  ] as const) {
    const directory = join(root, `rust-${job}`)
    const { code, output } = await runScript(script(workflow(file), job, 'Rust'), ROOT, stub(directory, 'rustup'))
    expect(code, output).toBe(0)
    const [install, chosen] = calls(directory)
    expect(install).toBe(`toolchain install --no-self-update --profile minimal ${version}`)
    expect(chosen).toBe(`default ${version}`)
  }
})

test('a tag that is not the version of every part stops the release', async () => {
  const run = script(RELEASE, 'build', 'The tag is the version of every part')
  const directory = clone('version')
  expect(await runScript(run, directory, { TAG: `v${VERSION}` })).toEqual({ code: 0, output: '' })
  const wrong = await runScript(run, directory, { TAG: 'v9.9.9' })
  expect(wrong.code).toBe(1)
  expect(wrong.output).toContain(`package.json has version ${VERSION}, not 9.9.9`)
  expect(wrong.output).toContain('CHANGELOG.md has no heading "## 9.9.9, YYYY-MM-DD"')
  expect((await runScript(run, directory, { TAG: 'main; true' })).code).toBe(1)
})

const PLATFORM = TARGETS.map(packageName)[0] ?? ''
const library = { type: 'library', 'bom-ref': 'cargo:one@1.0.0', name: 'one', version: '1.0.0' }
const PACKAGES: [name: string, bill: string, more?: object][] = [
  [
    'nereid',
    mainBill({ name: 'nereid', version: VERSION, license: 'Apache-2.0' }),
    { optionalDependencies: { [PLATFORM]: VERSION } },
  ],
  ['nereid-client', clientBill({ name: 'nereid-client', version: VERSION, license: 'Apache-2.0' })],
  [
    PLATFORM,
    document(
      { type: 'application', 'bom-ref': 'platform', name: PLATFORM, version: VERSION },
      [library],
      [{ ref: 'platform', dependsOn: [library['bom-ref']] }],
    ),
  ],
]

/** Writes packages with real bills of materials and nothing else below `directory`/packages. */
function pack(directory: string): string {
  const packages = join(directory, 'packages')
  mkdirSync(packages, { recursive: true })
  for (const [name, bill, more] of PACKAGES) {
    const from = join(directory, 'stage', name, 'package')
    mkdirSync(from, { recursive: true })
    writeFileSync(
      join(from, 'package.json'),
      JSON.stringify({ name, version: VERSION, license: 'Apache-2.0', ...more }),
    )
    writeFileSync(join(from, SBOM), bill)
    const file = `${name.replace('@', '').replace('/', '-')}-${VERSION}.tgz`
    execFileSync('tar', ['-czf', join(packages, file), '-C', join(from, '..'), 'package'])
  }
  const wheel = join(directory, 'stage', 'wheel')
  cpSync(join(directory, 'stage', 'nereid', 'package'), join(wheel, 'nereid/npm'), { recursive: true })
  cpSync(join(directory, 'stage', PLATFORM, 'package'), join(wheel, 'nereid/npm/node_modules', PLATFORM), {
    recursive: true,
  })
  mkdirSync(join(wheel, 'nereid_server.dist-info'))
  writeFileSync(
    join(wheel, 'nereid_server.dist-info', 'METADATA'),
    `Metadata-Version: 2.4\nName: nereid-server\nVersion: ${VERSION}+quick\nLicense-Expression: Apache-2.0 AND MIT\n`,
  )
  const file = join(packages, `nereid_server-${VERSION}-py3-none-any.whl`)
  execFileSync('python3', ['-m', 'zipfile', '-c', file, 'nereid', 'nereid_server.dist-info'], { cwd: wheel })
  return packages
}

interface Bill {
  metadata: { component: { name: string; purl: string; hashes: { content: string }[] } }
  components: { 'bom-ref': string; name: string; purl?: string }[]
  dependencies: { ref: string; dependsOn: string[] }[]
}
const billOf = (path: string) => JSON.parse(readFileSync(path, 'utf8')) as Bill

/** Every reference of a bill leads to one component, and each component is reached. */
function checkReferences({ metadata, components, dependencies }: Bill): void {
  const refs = [(metadata.component as { 'bom-ref'?: string })['bom-ref'], ...components.map((one) => one['bom-ref'])]
  expect(new Set(refs).size).toBe(refs.length)
  for (const { ref, dependsOn } of dependencies) for (const one of [ref, ...dependsOn]) expect(refs).toContain(one)
  const reached = new Set(dependencies.flatMap(({ dependsOn }) => dependsOn))
  expect(components.filter((one) => !reached.has(one['bom-ref']))).toEqual([])
}

test('each package gets a bill with its digest, a wheel that of both packages in it', async () => {
  const directory = clone('bills')
  const packages = pack(directory)
  const { code, output } = await runScript(script(RELEASE, 'build', 'Bills of materials'), directory)
  expect(code, output).toBe(0)
  const files = readdirSync(packages).filter((name) => !name.endsWith('.cdx.json'))
  expect(files).toHaveLength(4)
  for (const name of files) {
    const bill = billOf(join(packages, `${name}.cdx.json`))
    const digest = createHash('sha256')
      .update(readFileSync(join(packages, name)))
      .digest('hex')
    expect(bill.metadata.component.hashes.map(({ content }) => content)).toEqual([digest])
    checkReferences(bill)
  }
  const wheel = billOf(join(packages, `nereid_server-${VERSION}-py3-none-any.whl.cdx.json`))
  expect(wheel.metadata.component.purl).toBe(`pkg:pypi/nereid-server@${VERSION}%2Bquick`)
  const names = wheel.components.map(({ name }) => name)
  for (const name of ['nereid', PLATFORM, 'one', 'yaml']) expect(names).toContain(name)
  rmSync(join(directory, 'stage', 'nereid-client', 'package', SBOM))
  execFileSync('tar', [
    '-czf',
    join(packages, `nereid-client-${VERSION}.tgz`),
    '-C',
    join(directory, 'stage', 'nereid-client'),
    'package',
  ])
  const without = await runScript(script(RELEASE, 'build', 'Bills of materials'), directory)
  expect(without.code).toBe(1)
  expect(without.output).toContain(`nereid-client-${VERSION}.tgz has no ${SBOM}`)
})

/** A registry of npm that has only what was published to it. */
async function registry() {
  const versions = new Map<string, Record<string, { dist: { integrity: string } }>>()
  const order: string[] = []
  const server = createServer((request, response) => {
    const name = decodeURIComponent(request.url ?? '').slice(1)
    let text = ''
    request.on('data', (chunk: Buffer) => (text += String(chunk)))
    request.on('end', () => {
      const found = versions.get(name)
      if (request.method === 'PUT') {
        const body = JSON.parse(text) as { versions: Record<string, { dist: { integrity: string } }> }
        versions.set(name, { ...found, ...body.versions })
        order.push(name)
      }
      const isThere = request.method === 'PUT' || found !== undefined
      response.writeHead(isThere ? 200 : 404, { 'content-type': 'application/json' })
      response.end(JSON.stringify(isThere ? { name, 'dist-tags': { latest: VERSION }, versions: found } : {}))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const at = `127.0.0.1:${(server.address() as AddressInfo).port}/`
  return { at, order, close: () => server.close() }
}

test('npm gets nereid last; a second run adds what is missing, and refuses other bytes', async () => {
  const directory = clone('npm')
  const packages = pack(directory)
  const { at, order, close } = await registry()
  writeFileSync(join(directory, 'npmrc'), `registry=http://${at}\n//${at}:_authToken=none\nupdate-notifier=false\n`)
  const env = {
    npm_config_userconfig: join(directory, 'npmrc'),
    npm_config_cache: join(directory, 'cache'),
    npm_config_registry: `http://${at}`,
  }
  const run = RELEASE.jobs['publish-npm']?.steps.find((step) => step.run !== undefined)?.run ?? ''
  try {
    const main = join(packages, `nereid-${VERSION}.tgz`)
    mkdirSync(join(directory, 'dry'))
    cpSync(main, join(directory, 'dry', 'nereid.tgz'))
    const dry = await runScript(`${run.replace(/ packages$/, ' dry')} --dry-run`, directory, env)
    expect(dry.code, dry.output).toBe(0)
    expect(dry.output).toContain(`missing: ${PLATFORM}\nmissing: nereid-client\n`)
    expect(dry.output).toContain(`would be published: nereid@${VERSION} as latest\n`)
    expect(order).toEqual([])
    const platform = join(packages, `${PLATFORM.replace('@', '').replace('/', '-')}-${VERSION}.tgz`)
    const bytes = readFileSync(platform)
    rmSync(platform)
    const missing = await runScript(run, directory, env)
    expect(missing).toMatchObject({ code: 1, output: expect.stringContaining(`has no package ${PLATFORM}`) })
    expect(order).toEqual([])
    writeFileSync(platform, bytes)
    const done = await runScript(run, directory, env)
    expect(done.code, done.output).toBe(0)
    expect(order.toSorted()).toEqual(PACKAGES.map(([name]) => name).toSorted())
    expect(order.at(-1)).toBe('nereid')
    const again = await runScript(run, directory, env)
    expect(again.code, again.output).toBe(0)
    expect(again.output.match(/ is published already/g)).toHaveLength(PACKAGES.length)
    expect(order).toHaveLength(PACKAGES.length)
    execFileSync('tar', ['-czf', main, '--mtime=@9', '-C', join(directory, 'stage', 'nereid'), 'package'])
    const other = await runScript(run, directory, env)
    expect(other).toMatchObject({
      code: 1,
      output: expect.stringContaining(`the registry has nereid@${VERSION} with other bytes`),
    })
  } finally {
    close()
  }
  // npm starts seven times.
}, 60_000)

test('the bill of an image names the packages of nereid, Debian and Python, and Node', async () => {
  const directory = clone('image')
  pack(directory)
  const image = join(directory, 'root')
  const modules = join(image, 'opt/nereid/node_modules')
  for (const name of ['nereid', PLATFORM])
    cpSync(join(directory, 'stage', name, 'package'), join(modules, name), { recursive: true })
  const write = (path: string, text: string) => {
    mkdirSync(join(image, path, '..'), { recursive: true })
    writeFileSync(join(image, path), text)
  }
  write('etc/os-release', 'NAME="Debian"\nVERSION_ID="13"\nID=debian\n')
  const status = (name: string, version: string, state: string, more = '') =>
    `Package: ${name}\nStatus: ${state}\nArchitecture: amd64\n${more}Version: ${version}\nDescription: x\n y: no\n`
  const installed = 'install ok installed'
  write('var/lib/dpkg/status.d/libc6', status('libc6', '2.41-12+deb13u1', installed, 'Source: glibc (2.41-1)\n'))
  const gone = status('gone', '1', 'deinstall ok config-files')
  write('var/lib/dpkg/status', `${status('tar', '1.35', installed)}\n${gone}`)
  write(
    'opt/python/lib/python3.13/site-packages/numpy-2.4.6.dist-info/METADATA',
    'Name: numpy\nVersion: 2.4.6\n\nName: text\n',
  )
  // The program of the image runs here, and sees the directory in the place of its root.
  const env = {
    ...stub(
      directory,
      'docker',
      'case "$1" in run) exec node --input-type=module - "$IMAGE_ROOT" ;; save) touch "$3" ;; esac',
    ),
    IMAGE_ROOT: image,
    TAG: `v${VERSION}`,
    MACHINE: 'x64',
  }
  const { code, output } = await runScript(script(RELEASE, 'images', 'Bills of materials'), directory, env)
  expect(code, output).toBe(0)
  expect(calls(directory)[0]).toBe(`run --rm --interactive nereid:${VERSION}-x64 node --input-type=module -`)
  const out = join(directory, 'images-out')
  expect(readdirSync(out)).toEqual([
    `nereid-${VERSION}-x64.cdx.json`,
    `nereid-python-${VERSION}-x64.cdx.json`,
    'x64.tar',
  ])
  const bill = billOf(join(out, `nereid-${VERSION}-x64.cdx.json`))
  checkReferences(bill)
  const urls = bill.components.map(({ purl }) => purl)
  for (const url of [
    `pkg:generic/node@${process.versions.node}`,
    'pkg:deb/debian/libc6@2.41-12%2Bdeb13u1?arch=amd64&distro=debian-13&upstream=glibc',
    'pkg:deb/debian/tar@1.35?arch=amd64&distro=debian-13&upstream=tar',
    'pkg:pypi/numpy@2.4.6',
  ])
    expect(urls).toContain(url)
  expect(bill.components.map(({ name }) => name)).not.toContain('gone')
  rmSync(join(modules, PLATFORM, SBOM))
  expect(
    (await runScript(script(RELEASE, 'images', 'Bills of materials').replace('mkdir', 'mkdir -p'), directory, env))
      .code,
  ).toBe(1)
})

test('an image is right if it is ready, adds, and ends with 0', async () => {
  const directory = clone('start')
  const run = script(RELEASE, 'images', 'Each image answers with a read-only root and any user, and ends by itself')
  const server = await TestServer.start(join(ROOT, 'examples/models'), ['--exit-grace-secs=0'])
  // A server of this clone stands for the container.
  const container = (code: number) => ({
    ...stub(
      directory,
      'docker',
      `case "$1" in run) echo id ;; port) echo 127.0.0.1:${server.httpPort} ;; wait) echo ${code} ;; esac`,
    ),
    TAG: `v${VERSION}`,
    MACHINE: 'x64',
  })
  try {
    const right = await runScript(run, directory, container(0))
    expect(right.code, right.output).toBe(0)
    const started = calls(directory).filter((line) => line.startsWith('run '))
    expect(started.map((line) => line.split(' ').at(-1))).toEqual([
      `nereid:${VERSION}-x64`,
      `nereid-python:${VERSION}-x64`,
    ])
    const volume = `--volume ${directory}/models:/models:ro`
    for (const flags of ['--read-only', '--cap-drop ALL', '--user 1234567:0', volume])
      for (const line of started) expect(line).toContain(flags)
    expect(existsSync(join(directory, 'models/simple/1/model.onnx'))).toBe(true)
    expect((await runScript(run, directory, container(137))).code).toBe(1)
    const wrong = await runScript(run.replace('seq -s, 0 2 30', 'seq -s, 0 3 45'), directory, container(0))
    expect(wrong.code).toBe(1)
  } finally {
    await server.stop()
  }
})

test('an image has its name for both architectures only after each of them is there', async () => {
  const directory = join(root, 'push')
  mkdirSync(directory)
  const run = script(
    RELEASE,
    'publish-images',
    'The image of each architecture first, then the name that stands for both',
  )
  const env = { ...stub(directory, 'docker'), TAG: `v${VERSION}`, OWNER: 'Someone', ACTOR: 'person', TOKEN: 'hidden' }
  const { code, output } = await runScript(run, directory, env)
  expect(code, output).toBe(0)
  const made = calls(directory).filter((line) => /^(push|buildx) /.test(line))
  const one = (image: string) => {
    const name = `ghcr.io/someone/${image}:${VERSION}`
    return [
      `push ${name}-x64`,
      `push ${name}-arm64`,
      `buildx imagetools create --tag ${name} ${name}-x64 ${name}-arm64`,
    ]
  }
  expect(made).toEqual([...one('nereid'), ...one('nereid-python')])
  expect(calls(directory).join('\n')).not.toContain('hidden')
  const failing = {
    ...stub(directory, 'docker', '[[ $* != *-arm64 || $1 != push ]]'),
    TAG: `v${VERSION}`,
    OWNER: 'o',
    ACTOR: 'a',
    TOKEN: 't',
  }
  rmSync(join(directory, 'calls'))
  expect((await runScript(run, directory, failing)).code).toBe(1)
  expect(calls(directory).filter((line) => line.startsWith('buildx'))).toEqual([])
})
