/**
 * The job `build` of .github/workflows/release.yml, for this platform and with the module that set-up builds: its
 * scripts run in their order, and what they write is examined with tools of others: twine the wheel, the schema of
 * CycloneDX the bills of materials, npm the tarballs. The script that installs Rust does not run here.
 */
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { ask, capture } from '../../scripts/lib/run.mjs'
import { toolsOfPypi } from '../../scripts/package/pypi.mjs'
import { ownTarget, packageName } from '../../scripts/package/targets.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'release')
const PACKAGES = join(HERE, 'packages')
const TARGET = ownTarget()
const VERSION = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')).version
const TOOLS = ['twine==6.2.0', 'cyclonedx-python-lib==11.12.0', 'jsonschema==4.26.0', 'referencing==0.37.0']

async function missing() {
  const out = TARGET === undefined ? ['there is no package for this platform'] : []
  if (ask('python3', ['-c', 'import venv, ensurepip; print(1)']) === null)
    out.push('python3 with venv: apt-get install python3 python3-venv')
  return out
}

/** The scripts of a job by name, with `packages` in this suite's directory. */
function scripts(job) {
  const { jobs } = parse(readFileSync(join(ROOT, '.github', 'workflows', 'release.yml'), 'utf8'))
  const named = jobs[job].steps.filter(({ run }) => run !== undefined)
  return named.map(({ name, run }) => ({ name, run: run.replaceAll(/(?<= )packages$/gm, PACKAGES) }))
}

/** Runs a script as the workflow does, to its end. */
async function sh(run, env = {}) {
  return capture('bash', ['--noprofile', '--norc', '-eo', 'pipefail', '-c', run], {
    cwd: ROOT,
    env: { ...process.env, ...env },
    quiet: true,
  })
}

async function passes(run, env) {
  const { code, text } = await sh(run, env)
  must(code === 0, `${run} ended with ${code}: ${text.trim().slice(-2000)}`)
  return text
}

/** How each script runs here, by its name in the workflow. */
const HOW = {
  async 'The tag is the version of every part'(run) {
    // Between two releases the heading has no date, and nothing else may be wrong.
    const { code, text } = await sh(run, { TAG: `v${VERSION}` })
    must(code === 0 || text === `CHANGELOG.md has no heading "## ${VERSION}, YYYY-MM-DD"\n`, text)
    const other = await sh(run, { TAG: 'v99.0.0' })
    must(other.code === 1 && other.text.includes(`package.json has version ${VERSION}, not 99.0.0`), other.text)
  },
  Rust: null,
  async Packages(run) {
    const here = run.replaceAll(/ --target=\S+/g, '').replace('--out packages', `--out ${PACKAGES}`)
    must(run.includes(`--target=${TARGET.name}`), `the workflow does not build ${TARGET.name}`)
    await passes(`${here} --module=built`)
  },
  'Bills of materials': (run) => passes(run),
}

const SCHEMA = `
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for path in sys.argv[1:]:
    with open(path) as bill:
        error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill.read())
    assert error is None, f'{path}: {error}'
print(len(sys.argv) - 1, 'valid')
`

async function run(checks) {
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(HERE, { recursive: true })
  const left = []
  for (const { name, run: text } of scripts('build')) {
    must(name in HOW, `the workflow has the script ${name}, which this suite does not know`)
    if (HOW[name] === null) left.push(name)
    else await checks.step(name, () => HOW[name](text))
  }
  const files = readdirSync(PACKAGES)
  const [tarballs, wheels] = ['.tgz', '.whl'].map((ending) => files.filter((name) => name.endsWith(ending)))
  const bills = files.filter((name) => name.endsWith('.cdx.json')).map((name) => join(PACKAGES, name))
  await checks.step('there are three tarballs and a wheel, and a bill beside each', () => {
    const names = ['nereid', 'nereid-client', `nereid-${TARGET.suffix}`].map((name) => `${name}-${VERSION}.tgz`)
    must(tarballs.toSorted().join() === names.toSorted().join(), `the tarballs are ${tarballs.join(', ')}`)
    must(wheels.length === (TARGET.glibc === null ? 0 : 1), `the wheels are ${wheels.join(', ')}`)
    const expected = [...tarballs, ...wheels].map((name) => `${join(PACKAGES, name)}.cdx.json`)
    must(bills.toSorted().join() === expected.toSorted().join(), `the bills are ${bills.join(', ')}`)
  })
  const { bin } = await toolsOfPypi('release', TOOLS, 'the checks of a release')
  await checks.step('each bill is valid CycloneDX, and has the digest of its file', async () => {
    const { code, text } = await capture(join(bin, 'python'), ['-c', SCHEMA, ...bills], { quiet: true })
    must(code === 0 && text.includes(`${bills.length} valid`), text.trim().slice(-2000))
    for (const path of bills) {
      const { component } = JSON.parse(readFileSync(path, 'utf8')).metadata
      const digest = createHash('sha256')
        .update(readFileSync(path.replace(/\.cdx\.json$/, '')))
        .digest('hex')
      must(component.hashes[0].content === digest, `${path} is of another file`)
    }
  })
  const counts = await checks.step('the wheel has what both packages in it have', () => {
    const names = (ending) => {
      const path = bills.find((one) => one.endsWith(`${ending}.cdx.json`))
      const { metadata, components } = JSON.parse(readFileSync(path, 'utf8'))
      return { of: metadata.component.name, all: components.map((one) => one['bom-ref']) }
    }
    const [main, platform] = [`nereid-${VERSION}.tgz`, `nereid-${TARGET.suffix}-${VERSION}.tgz`].map(names)
    must(main.of === 'nereid' && platform.of === packageName(TARGET), `${main.of}, ${platform.of}`)
    const wheel = names('.whl')
    const lacks = [...main.all, ...platform.all].filter((one) => !wheel.all.includes(one))
    must(lacks.length === 0 && main.all.length > 0 && platform.all.length > 0, `the wheel lacks ${lacks.join(', ')}`)
    return wheel.all.length
  })
  await checks.step('twine accepts the wheel', async () => {
    const { code, text } = await capture(join(bin, 'twine'), ['check', '--strict', join(PACKAGES, wheels[0])], {
      quiet: true,
    })
    must(code === 0 && text.includes('PASSED'), text)
  })
  await checks.step('npm would publish the tarballs, nereid last', async () => {
    const [{ run: publish }] = scripts('publish-npm')
    // No registry answers there.
    const env = { npm_config_registry: 'http://127.0.0.1:9/', npm_config_fetch_retries: '0' }
    const text = await passes(`${publish} --dry-run`, env)
    const published = [...text.matchAll(/^would be published: (\S+)@/gm)].map(([, name]) => name)
    must(published.length === 3 && published.at(-1) === 'nereid', published.join(', '))
  })
  return (
    `${tarballs.length} tarballs, ${wheels.length} wheel, ${bills.length} bills; ${counts} components in the wheel; ` +
    `${TOOLS[0]}, CycloneDX 1.6, npm ${ask('npm', ['--version'])}; not run: ${left.join(', ')}`
  )
}

export const release = {
  about: 'the scripts of the release for this platform: packages, wheel and bills, checked by twine, CycloneDX and npm',
  missing,
  steps: undefined,
  run,
}
