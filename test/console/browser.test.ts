/** The page in a real Chromium, at real servers. Runs with --nightly. */
import { spawnSync, type ChildProcess } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { config, writeModel } from '../../scripts/models/repository.mjs'
import { ROOT, TestServer } from '../server/harness.js'
import { CHROMIUM, Tab, endChromium, startChromium } from '../server/tab.js'

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const PHONE = 360
const DESKTOP = 1280
/** A name that would run as a script in a page that parses names. */
const HOSTILE = '<img src=x onerror=document.title=1>'
const MANY = 1000
/** Models whose rows are reached with the keyboard. */
const ROWS = 300

const work = mkdtempSync(join(tmpdir(), 'nereid-console-'))
/** Writes a model that returns its input after so many milliseconds. */
function identity(repository: string, name: string, delay_ms: number, more = ''): void {
  const row: [string, string, number[]][] = [['INPUT0', 'TYPE_FP32', [-1]]]
  const output: [string, string, number[]][] = [['OUTPUT0', 'TYPE_FP32', [-1]]]
  const delay = `parameters { key: "execute_delay_ms" value: { string_value: "${delay_ms}" } }\n`
  writeModel(join(work, repository), name, {
    config: config('identity', 0, row, output, `instance_group { count: 1 kind: KIND_CPU }\n${delay}${more}`),
  })
}

/** Sends requests without a pause from so many clients, until the returned function is called. */
function load(url: string, model: string, clients: number, values = [1]): () => Promise<void> {
  const end = new AbortController()
  const body = JSON.stringify({ inputs: [{ name: 'INPUT0', datatype: 'FP32', shape: [values.length], data: values }] })
  const path = `${url}/v2/models/${encodeURIComponent(model)}/infer`
  const client = async (): Promise<void> => {
    // A test that failed does not end its load, and the server ends before it.
    while (!end.signal.aborted)
      await fetch(path, { method: 'POST', body }).then(
        (one) => one.text(),
        () => end.abort(),
      )
  }
  const all = Array.from({ length: clients }, client)
  return async () => {
    end.abort()
    await Promise.all(all)
  }
}

const text = (selector: string) => `(document.querySelector('${selector}')?.textContent ?? '')`

/** Pages, each with what is true once it shows what it has. */
const PAGES = {
  '/': text('main table, main ul'),
  '/docs': text('main details'),
  '/console': `document.querySelector('.curve canvas') && ${text('.findings')}`,
  '/console#model=quick&version=1': text('dialog .why, dialog .empty'),
}

describe.skipIf(CHROMIUM === undefined)('the console', { timeout: 120_000 }, () => {
  let browser: ChildProcess
  let server: TestServer
  const tabs: Tab[] = []
  afterEach(async () => {
    for (const tab of tabs.splice(0)) await tab.close()
  })

  beforeAll(async () => {
    identity('models', 'slow', 60)
    identity('models', 'quick', 1)
    identity('models', HOSTILE, 1)
    writeModel(join(work, 'models'), 'broken', { config: 'backend: "nothing"\nmax_batch_size: 0\n' })
    server = await TestServer.start(join(work, 'models'), [
      '--model-control-mode=explicit',
      '--load-model=*',
      '--exit-on-error=false',
      '--strict-readiness=false',
    ])
    browser = startChromium(join(work, 'profile'))
  }, 60_000)
  afterAll(async () => {
    await endChromium(browser)
    await server.stop()
    rmSync(work, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
  })

  async function open(path = '/console', { width = 1280, at = server, scheme = 'light' as 'light' | 'dark' } = {}) {
    const tab = new Tab(browser)
    tabs.push(tab)
    await tab.attach(width)
    await tab.prefer(scheme)
    await tab.open(`${at.url}${path}`)
    return tab
  }

  /** The rules that the page breaks, with the elements. */
  async function violations(tab: Tab): Promise<unknown> {
    await tab.run(AXE)
    return tab.run(`axe.run({ resultTypes: ['violations'] }).then(({ violations }) =>
      violations.map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html.slice(0, 150))]))`)
  }

  test('shows which model is slow, and its panel says why and what to change', async () => {
    const stop = load(server.url, 'slow', 8)
    const tab = await open()
    const found = await tab.until(`[...document.querySelectorAll('.finding .words')]
      .map((one) => one.textContent.trim())
      .find((one) => /^slow.*in the queue: \\d wait, and its only instance is busy/.test(one))`)
    expect(found).toMatch(/^slow A request takes \d{3} ms, \d{3} ms of it in the queue/)
    // The slow one is the first that serves, with its numbers.
    expect(await tab.until(`document.querySelectorAll('.models .state.good')[0]?.closest('tr').innerText`)).toMatch(
      /^slow\s+1\s+serves\s+\d\s+1\d/,
    )
    await tab.run(`[...document.querySelectorAll('.finding .name')].find((one) => one.textContent === 'slow').click()`)
    await tab.until(text('.advice'))
    expect(await tab.run(text('.advice'))).toMatch(
      /^instances from 1 to \d.*instance_group.*now:.*expected: \d+ requests/,
    )
    expect(await tab.run(text('.why .phases'))).toMatch(/^\d+ ms waiting in the queue/)
    await stop()
  })

  test('asks no other server, and keeps the key nowhere', async () => {
    const tab = await open()
    await tab.until(text('.findings'))
    expect(
      await tab.run(`({
      others: performance.getEntriesByType('resource').map(({ name }) => name)
        .filter((name) => !name.startsWith(location.origin) && !name.startsWith('data:')),
      kept: [localStorage.length, sessionStorage.length, document.cookie],
    })`),
    ).toEqual({ others: [], kept: [0, 0, ''] })
  })

  test('breaks no rule of axe, in light and dark, on a phone and with a model open', async () => {
    for (const scheme of ['light', 'dark'] as const) {
      for (const width of [1280, PHONE]) {
        for (const [path, shown] of Object.entries(PAGES)) {
          const tab = await open(path, { width, scheme })
          await tab.until(shown)
          expect(await violations(tab), `${scheme} ${width} ${path}`).toEqual([])
        }
      }
    }
  })

  test('on a phone nothing is wider than the screen', async () => {
    for (const [path, shown] of Object.entries(PAGES)) {
      const tab = await open(path, { width: PHONE })
      await tab.until(shown)
      const wide = `[...document.querySelectorAll('main *, dialog *')]
        .filter((one) => !one.closest('.hidden, .scroll, pre'))
        .filter((one) => one.getBoundingClientRect().right > ${PHONE}).map((one) => one.outerHTML.slice(0, 100))`
      expect(await tab.run(`[document.documentElement.scrollWidth, ${wide}]`), path).toEqual([PHONE, []])
    }
  })

  test('is used with the keyboard alone: a model opens', async () => {
    const tab = await open()
    await tab.until(`document.querySelector('.models button.name')`)
    await tab.press('Tab')
    expect(await tab.run('document.activeElement.textContent')).toBe('Skip to the contents')
    const seen = new Set<string>()
    while ((await tab.run(`document.activeElement.matches('.models button.name')`)) !== true) {
      await tab.press('Tab')
      seen.add(String(await tab.run('document.activeElement.textContent || document.activeElement.id')))
      expect(seen.size).toBeLessThan(40)
      // The focus can be seen.
      expect(await tab.run(`getComputedStyle(document.activeElement).outlineStyle`)).toBe('solid')
    }
    const name = await tab.run('document.activeElement.textContent')
    await tab.press('Enter')
    await tab.until(`document.querySelector('dialog[open]')`)
    expect(await tab.run(text('#panel-title'))).toBe(name)
    await tab.press('Escape')
    await tab.until(`document.querySelector('dialog') === null`)
    await tab.until(`document.activeElement.matches('.models button.name')`)
    expect(await tab.run('document.activeElement.textContent')).toBe(name)
  })

  test('unloads and loads a model, and shows the text of the server if it cannot', async () => {
    const tab = await open('/console#model=quick&version=1')
    const press = (label: string) => `[...document.querySelectorAll('dialog button')]
      .find((one) => one.textContent === '${label}' && !one.disabled)?.click() === undefined`
    await tab.until(text('dialog .tools button'))
    await tab.run(press('Unload'))
    expect(await tab.until(text('#ask'))).toBe('Unload quick? It serves no requests now.')
    await tab.until(`document.activeElement.textContent === 'Keep'`)
    await tab.press('Escape')
    await tab.until(`document.querySelector('.ask') === null && document.activeElement.textContent === 'Unload'`)
    const stop = load(server.url, 'quick', 1)
    await tab.until(`/[1-9]/.test(${text('dialog .tile b')})`)
    await tab.run(press('Unload'))
    expect(await tab.until(text('#ask'))).toMatch(
      /^Unload quick\? It answers [\d.,]+ requests? per second, which will fail\.$/,
    )
    expect(await violations(tab)).toEqual([])
    expect(await (await fetch(`${server.url}/v2/models/quick/ready`)).status).toBe(200)
    await stop()
    await tab.run(`document.querySelector('.ask .primary').click()`)
    await tab.until(`${text('dialog .state')} === 'not loaded'`)
    expect(await tab.run('document.activeElement.textContent')).toMatch(/^Load/)
    await tab.run(press('Load'))
    await tab.until(`${text('dialog .state')} === 'serves'`)
    expect(await tab.run(text('dialog .outcome'))).toBe('quick: loaded.')
    const settings = await open()
    await settings.until(`document.querySelector('#load-name')`)
    await settings.run(`(() => {
      const field = document.querySelector('#load-name')
      field.value = 'broken'
      field.dispatchEvent(new Event('input', { bubbles: true }))
    })()`)
    await settings.until(`!document.querySelector('#load-name + button').disabled`)
    await settings.run(`document.querySelector('#load-name + button').click()`)
    expect(await settings.until(text('form .outcome.bad'))).toMatch(
      /^load failed for model 'broken': .* unable to find backend library for backend 'nothing'/,
    )
  })

  test('changes settings of the log, and shows what was changed', async () => {
    const tab = await open()
    const level = `document.querySelector('#setting-log_verbose_level')`
    await tab.until(level)
    await tab.run(`(() => {
      ${level}.value = '1'
      ${level}.dispatchEvent(new Event('input', { bubbles: true }))
    })()`)
    await tab.until(`!${level}.form.querySelector('button').disabled`)
    await tab.run(`${level}.form.querySelector('button').click()`)
    await tab.until(`${level}.form.querySelector('.outcome').textContent === 'Log: changed.'`)
    expect(await (await fetch(`${server.url}/v2/logging`)).json()).toMatchObject({
      log_verbose_level: 1,
      log_info: true,
    })
    await fetch(`${server.url}/v2/logging`, { method: 'POST', body: '{"log_verbose_level":0}' })
  })

  test('shows names of models as text', async () => {
    const tab = await open()
    const row = `[...document.querySelectorAll('.models .name')]
      .find((one) => one.textContent === ${JSON.stringify(HOSTILE)})`
    await tab.until(row)
    await tab.run(`${row}.click()`)
    await tab.until(`${text('#panel-title')} === ${JSON.stringify(HOSTILE)}`)
    expect(
      await tab.run(`[...document.querySelectorAll('dialog button')].map((one) => one.textContent.trim())`),
    ).toEqual(['×'])
    expect(await tab.run(text('dialog'))).toContain('only gRPC can load, unload, explain and try it')
    expect(await tab.run(`[document.querySelectorAll('img').length, document.title === '1']`)).toEqual([0, false])
  })

  test('closes its stream while it is hidden, and continues when it is seen again', async () => {
    const tab = await open()
    await tab.until(`${text('.status .state')} === 'ready'`)
    const consoles = async () =>
      /^nereid_consoles (\d+)/m.exec(await (await fetch(`http://127.0.0.1:${server.metricsPort}/metrics`)).text())?.[1]
    const before = Number(await consoles())
    const hide = (hidden: boolean) =>
      tab.run(`(() => {
      Object.defineProperty(document, 'hidden', { value: ${hidden}, configurable: true })
      document.dispatchEvent(new Event('visibilitychange'))
    })()`)
    await hide(true)
    await tab.until(`${text('.status .state')} === 'paused while the page is hidden'`)
    await expect.poll(async () => Number(await consoles())).toBe(before - 1)
    await hide(false)
    await tab.until(`${text('.status .state')} === 'ready'`)
    await expect.poll(async () => Number(await consoles())).toBe(before)
  })

  test('says since when there is no connection', async () => {
    const first = await TestServer.start(join(work, 'models'), ['--model-control-mode=explicit'])
    const tab = await open('/console', { at: first })
    await tab.until(`${text('.status .state')} === 'ready'`)
    await first.stop()
    expect(await tab.until(`/no connection/.test(${text('.status .state')}) && ${text('.status .state')}`)).toMatch(
      /^was draining; no connection since \d\d:\d\d:\d\d, trying again$/,
    )
    expect(await violations(tab)).toEqual([])
    expect(await tab.run('document.title')).toMatch(/^offline – triton/)
    expect(await tab.run(`document.body.textContent`)).not.toMatch(/Nothing unusual|Failed to fetch/)
    const flags = [`--http-port=${first.httpPort}`]
    const second = await TestServer.spawn(join(work, 'models'), ['--model-control-mode=explicit', ...flags])
    await tab.until(`${text('.status .state')} === 'ready'`)
    expect(await tab.run(text('.finding'))).toMatch(/^No model is loaded/)
    await second.stop()
  })

  test('asks for a key where the server wants one, shows the text of the server', async () => {
    const keys = join(work, 'keys.json')
    const main = join(ROOT, 'dist/cli/main.js')
    const make = (scope: string) =>
      spawnSync(process.execPath, [main, 'key', `--name=${scope.slice(0, 3)}`, `--scope=${scope}`, keys], {
        encoding: 'utf8',
      })
        .stdout.trim()
        .split(/\s+/)
        .at(-1) ?? ''
    const [reads, all] = [make('inference'), make('all')]
    const guarded = await TestServer.start(join(work, 'models'), [`--keys-file=${keys}`, '--exit-on-error=false'])
    const tab = await open('/console', { at: guarded })
    const type = (key: string) =>
      tab.run(`(() => {
      const field = document.querySelector('#key')
      field.value = ${JSON.stringify(key)}
      field.dispatchEvent(new Event('input', { bubbles: true }))
      requestAnimationFrame(() => field.form.requestSubmit())
    })()`)
    expect(await tab.until(text('.key [role=alert]'))).toMatch(/key/)
    expect(await violations(tab)).toEqual([])
    const without = await tab.run(text('.key [role=alert]'))
    await type(reads)
    const alert = text('.key [role=alert]')
    expect(await tab.until(`${alert} !== ${JSON.stringify(without)} && ${alert}`)).toMatch(/permission|scope|may not/)
    await type(all)
    await tab.until(text('.findings'))
    // The key stays, from one view to another and back.
    for (const [path, shown] of [
      ['/docs', 'main details'],
      ['/', 'main table'],
      ['/console', '.findings'],
    ] as const) {
      await tab.run(`document.querySelector('header nav a[href="${path}"]').click()`)
      await tab.until(`location.pathname === '${path}' && ${text(shown)}`)
      expect(await tab.run(`document.querySelector('.key')`)).toBe(null)
    }
    expect(
      await tab.run(`JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])`),
    ).not.toContain(all)
    await guarded.stop()
  })

  test('says that there is no such model, for a link to one', async () => {
    const tab = await open('/console#model=nope')
    expect(await tab.until(text('main > [role=alert]'))).toBe("There is no model 'nope' in this server's repository.")
  })

  test('checks a level of the log before it is sent', async () => {
    const tab = await open()
    const level = `document.querySelector('#setting-log_verbose_level')`
    await tab.until(level)
    await tab.run(`(() => {
      ${level}.value = '-1.5'
      ${level}.dispatchEvent(new Event('input', { bubbles: true }))
    })()`)
    await tab.until(`${level}.getAttribute('aria-invalid') === 'true'`)
    expect(await tab.run(text('#setting-log_verbose_level-says'))).toBe("'-1.5' is not a whole number from 0.")
    expect(await tab.run(`${level}.form.querySelector('button').disabled`)).toBe(true)
  })

  test('moves between its views without loading the page again', async () => {
    const tab = await open('/')
    await tab.until(text('main table'))
    await tab.run('window.sameProgram = true')
    const go = (label: string) => `[...document.querySelectorAll('header nav a')]
      .find((one) => one.textContent === '${label}').click()`
    await tab.run(go('Console'))
    await tab.until(text('.findings'))
    expect(await tab.run(`[location.pathname, window.sameProgram, document.activeElement.tagName]`)).toEqual([
      '/console',
      true,
      'H1',
    ])
    await tab.run(go('HTTP API'))
    await tab.until(text('main details'))
    await tab.until(`document.activeElement.tagName === 'H1'`)
    expect(await tab.run(`document.querySelector('nav [aria-current]').textContent`)).toBe('HTTP API')
    await tab.run('history.back()')
    await tab.until(`location.pathname === '/console' && ${text('.findings')} &&
      /triton · Nereid$/.test(document.title)`)
    await tab.run('history.back()')
    await tab.until(`location.pathname === '/' && ${text('main table')}`)
    // A name opens the panel of the console.
    await tab.run(`[...document.querySelectorAll('td a')].find((one) => one.textContent === 'slow').click()`)
    await tab.until(`${text('#panel-title')} === 'slow'`)
    expect(await tab.run('window.sameProgram')).toBe(true)
  })

  test('a long line of a configuration scrolls in its box, and the panel never sideways', async () => {
    for (const width of [DESKTOP, PHONE]) {
      const tab = await open('/console#model=quick&version=1', { width })
      await tab.until(text('dialog .why, dialog .empty'))
      await tab.run(`[...document.querySelectorAll('dialog details')].forEach((one) => { one.open = true })`)
      await tab.until(text('.config'))
      expect(
        await tab.run(`(() => {
        const code = document.querySelector('.config')
        code.textContent = 'x'.repeat(2000)
        const panel = document.querySelector('dialog')
        return [panel.scrollWidth - panel.clientWidth, code.scrollWidth > code.clientWidth]
      })()`),
        String(width),
      ).toEqual([0, true])
    }
  })

  test('names of models and times of requests are on one line where there is room', async () => {
    const name = 'pricing_of_all_goods_in_the_shop'
    identity('models', name, 1)
    await fetch(`${server.url}/v2/repository/models/${name}/load`, { method: 'POST', body: '{}' })
    const stop = load(server.url, name, 1)
    for (const [path, table] of [
      ['/console', '[aria-labelledby=slowest]'],
      ['/', 'main'],
    ] as const) {
      const tab = await open(path)
      const own = `[...document.querySelectorAll('${table} td :is(a, .name, time)')]`
      // Slower requests of other tests may be all that the console lists.
      await tab.until(path === '/' ? `${own}.some((one) => one.textContent === '${name}')` : `${own}.length > 1`)
      // A name that has spaces may break at them.
      expect(
        await tab.run(`${own}.filter((one) => !/ /.test(one.textContent) && (one.getClientRects().length > 1 ||
        one.getBoundingClientRect().height > 24)).map((one) => one.textContent)`),
        path,
      ).toEqual([])
    }
    await stop()
  })

  test('the table is sorted at once by the header under the pointer', async () => {
    for (let i = 0; i < ROWS; i += 1) identity('rows', `row-${String(i).padStart(3, '0')}`, 0)
    const rows = await TestServer.start(join(work, 'rows'), ['--model-control-mode=explicit', '--load-model=row-299'])
    const tab = await open('/console', { at: rows })
    await tab.until(`${text('#models + p')} === '1 version of 300 serves'`)
    const first = text('.models tbody .name')
    await tab.run(`document.querySelector('.models').dispatchEvent(new PointerEvent('pointerenter'))`)
    const stop = load(rows.url, 'row-299', 1)
    await tab.until(`/[1-9]/.test([...document.querySelectorAll('.tile b')][2].textContent)`)
    await tab.run(`document.querySelectorAll('.models button.sort')[2].click()`)
    await tab.until(`${first} === 'row-299'`)
    await tab.run(`document.querySelectorAll('.models button.sort')[0].click()`)
    await tab.until(`${first} === 'row-000'`)
    await tab.run(`document.querySelector('.models').dispatchEvent(new PointerEvent('pointerleave'))`)
    await stop()
    await tab.run(`document.querySelector('.models tbody .name').focus()`)
    const seen = ['row-000']
    while (seen.length < ROWS) {
      await tab.press('Tab')
      // The rows in sight are drawn once the table has scrolled.
      const name = String(
        await tab.run(`new Promise((done) =>
        requestAnimationFrame(() => requestAnimationFrame(() => done(document.activeElement.textContent))))`),
      )
      expect(name).toBe(`row-${String(seen.length).padStart(3, '0')}`)
      seen.push(name)
    }
    await rows.stop()
  })

  test(`stays usable with ${MANY} models: only rows in sight are drawn`, async () => {
    for (let i = 0; i < MANY; i += 1) identity('many', `model-${String(i).padStart(4, '0')}`, 0)
    // Listed, and not loaded, which would take most of a minute on a busy machine.
    const many = await TestServer.start(join(work, 'many'), ['--model-control-mode=explicit'])
    const tab = await open('/console', { at: many })
    await tab.until(`${text('#models + p')} === '0 versions of 1,000 serve'`)
    expect(await tab.run(`document.querySelectorAll('.models tbody tr').length`)).toBeLessThan(40)
    await tab.run(`document.querySelector('.models').scrollTop = 1e9`)
    await tab.until(`[...document.querySelectorAll('.models .name')].some((one) => one.textContent === 'model-0999')`)
    await tab.run(`(() => {
      const field = document.querySelector('#filter')
      field.value = '0421'
      field.dispatchEvent(new Event('input', { bubbles: true }))
    })()`)
    await tab.until(`document.querySelectorAll('.models .name').length === 1`)
    expect(await tab.run(text('.models .name'))).toBe('model-0421')
    expect(await violations(tab)).toEqual([])
    await many.stop()
  })
})
