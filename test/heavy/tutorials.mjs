/**
 * The tutorials (docs/tutorials): every page is run as it stands, after the packages that it names are installed, and
 * every notebook beside the pages. A page with `<!-- suite: NAME -->` is run by that suite instead.
 */
import { mkdirSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { peerEnvironment } from '../../bench/lib/venv.mjs'
import { junitCounts } from '../../scripts/lib/counts.mjs'
import { capture, show } from '../../scripts/lib/run.mjs'
import { ROOT } from '../../scripts/setup.mjs'
import { must } from './lib/checks.mjs'

const HERE = join(ROOT, 'target', 'heavy', 'tutorials')
const TUTORIALS = join(ROOT, 'docs', 'tutorials')
const NOTEBOOKS = ['nbclient==0.11.0', 'ipykernel==7.4.0', 'nbformat==5.11.1']
const say = (line) => process.stdout.write(`${line}\n`)

const textOf = (name) => readFileSync(join(TUTORIALS, name), 'utf8')

/** The suite that a page names; undefined for the pages of this one. */
const suiteOf = (name) => /^<!-- suite: (.*) -->$/m.exec(textOf(name))?.[1]

/** The pages of this suite, and those of others. */
function pages() {
  const all = readdirSync(TUTORIALS).filter((name) => name.endsWith('.md') && name !== 'README.md')
  return { own: all.filter((name) => suiteOf(name) === undefined), others: all.filter((name) => suiteOf(name)) }
}

/** The commands of the pages that install packages. */
const installations = () =>
  pages()
    .own.flatMap((name) => textOf(name).match(/^python3 -m pip install .*$/gm) ?? [])
    .filter((line) => !line.includes('nereid_server'))

async function run(checks) {
  rmSync(HERE, { recursive: true, force: true })
  mkdirSync(HERE, { recursive: true })
  const requirements = ['-r', join(ROOT, 'test', 'python', 'requirements.txt')]
  const { python, bin } = await peerEnvironment(ROOT, 'tutorials', [...requirements, ...NOTEBOOKS], say)
  const env = {
    ...process.env,
    PATH: `${bin}:${process.env.PATH}`,
    PYTHONPATH: join(ROOT, 'packaging', 'wheel'),
    NEREID_MAIN: join(ROOT, 'dist', 'cli', 'main.js'),
    NEREID_PAGES: 'docs/tutorials',
  }
  for (const command of installations()) {
    const { code, text } = await capture('sh', ['-c', command], { env, quiet: true })
    must(code === 0, `${command}: ${text.trim().split('\n').at(-1)}`)
  }
  const report = join(HERE, 'pytest.xml')
  const options = ['-c', 'test/python/pytest.ini', '-q', '--timeout=300', '--tb=short', `--junitxml=${report}`]
  const code = await show(python, ['-m', 'pytest', ...options, 'test/pages', 'test/heavy/tutorials'], {
    cwd: ROOT,
    env,
  })
  checks.add('pages and notebooks', junitCounts(code, report))
  const { own, others } = pages()
  const notebooks = readdirSync(TUTORIALS).filter((name) => name.endsWith('.ipynb'))
  const elsewhere = others.map((name) => `; ${name} is run by the suite ${suiteOf(name)}`)
  return `${own.length + notebooks.length} pages${elsewhere.join('')}`
}

export const tutorials = {
  about: 'the tutorials and their notebooks, with the packages that they name',
  missing: async () => [],
  run,
}
