/** "Try a model", `/docs` and `/` in a real Chromium, at a real server. Runs with --nightly. */
import type { ChildProcess } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { DECOUPLED, REPEAT, config, writeModel } from '../../scripts/models/repository.mjs'
import { writeTestRepositories } from '../models/generate.mjs'
import { pngOf, writeDetector, writePictureClassifier } from '../models/pictures.mjs'
import { writeTextModel, textFolder } from '../models/text.mjs'
import { TestServer } from '../server/harness.js'
import { CHROMIUM, Tab, endChromium, startChromium } from '../server/tab.js'

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const PHONE = 360
/** A model whose name would run as a script in a page that parses names. */
const HOSTILE = '<img src=x onerror=document.title=1>'
/** One red pixel. */
const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC'
const SEQUENCE = `sequence_batching { control_input [
  { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
  { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY int32_false_true: [ 0, 1 ] } ] } ] }\n`

const LABELS = ['red thing', 'blue <b>', 'small']
/** Boxes in the letterbox of 64 x 64, score and class; a picture of 320 x 160 is scaled by 0.2. */
const FOUND = [
  [8, 24, 28, 40, 0.96875, 0],
  [40, 16, 62, 28, 0.5, 1],
]
/** The rectangles that `FOUND` has in a picture of 320 x 160. */
const THINGS = [
  [40, 40, 140, 120, 220, 40, 40],
  [200, 0, 310, 60, 40, 60, 220],
]

const work = mkdtempSync(join(tmpdir(), 'nereid-try-'))
const repository = join(work, 'main')

/** Element with this label, or the one whose `aria-label` it is. */
const LABELLED = `const labelled = (text) => document.querySelector('[aria-label="' + text + '"]') ??
  [...document.querySelectorAll('label')].find((one) => one.textContent.trim().startsWith(text))?.control`

describe.skipIf(CHROMIUM === undefined)('try a model', { timeout: 60_000 }, () => {
  let browser: ChildProcess
  let server: TestServer
  const tabs: Tab[] = []

  beforeAll(async () => {
    writeTestRepositories(work)
    const number = (name: string): [string, string, number[]][] => [[name, 'TYPE_INT32', [1]]]
    writeModel(repository, 'sums', { config: config('sequence', 2, number('INPUT'), number('OUTPUT'), SEQUENCE) })
    writeModel(repository, 'repeat', { config: config('repeat', 0, ...REPEAT, DECOUPLED) })
    const floats = (name: string): [string, string, number[]][] => [[name, 'TYPE_FP32', [-1]]]
    writeModel(repository, HOSTILE, { config: config('identity', 0, floats('INPUT0'), floats('OUTPUT0')) })
    writeTextModel(repository, 'embed', textFolder())
    writeTextModel(repository, 'rerank', textFolder({ labels: ['relevant'] }))
    writeTextModel(repository, 'labels', textFolder({ labels: ['bad', 'good', 'unknown'] }))
    writeDetector(repository, 'detect', LABELS, FOUND)
    writePictureClassifier(repository, 'sort', LABELS, [0.25, 0.625, 0.125])
    server = await TestServer.start(repository)
    browser = startChromium(join(work, 'profile'))
  }, 60_000)
  afterEach(async () => {
    for (const tab of tabs.splice(0)) await tab.close()
  })
  afterAll(async () => {
    await endChromium(browser)
    await server.stop()
    rmSync(work, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
  })

  async function open(path: string, { width = 1280, scheme = 'light' as 'light' | 'dark' } = {}): Promise<Tab> {
    const tab = new Tab(browser)
    tabs.push(tab)
    await tab.attach(width)
    await tab.prefer(scheme)
    await tab.open(`${server.url}${path}`)
    return tab
  }

  async function tryModel(model: string, more = {}): Promise<Tab> {
    const tab = await open(`/docs?model=${encodeURIComponent(model)}`, more)
    await tab.until("document.querySelector('.try button.primary')")
    return tab
  }

  /** Types into a field, or chooses an option. */
  const fill = (tab: Tab, label: string, value: string): Promise<unknown> =>
    tab.until(`(() => { ${LABELLED}
      const field = labelled(${JSON.stringify(label)})
      field.value = ${JSON.stringify(value)}
      for (const name of ['input', 'change']) field.dispatchEvent(new Event(name, { bubbles: true }))
      return true })()`)

  const press = (tab: Tab, text: string): Promise<unknown> =>
    tab.run(`[...document.querySelectorAll('button')]
      .find((one) => one.textContent === ${JSON.stringify(text)}).click()`)

  /** Sends, and resolves with the text of the answer. */
  async function send(tab: Tab, done = "document.querySelector('.answer .record, .answer .bad')"): Promise<string> {
    await press(tab, 'Send')
    await tab.until(done)
    return (await tab.run("document.querySelector('.answer')?.textContent")) as string
  }

  /** The shown values of outputs by name, with datatype and shape. */
  const outputs = (tab: Tab): Promise<unknown> =>
    tab.run(`[...document.querySelectorAll('.answer .tensor')].map((one) =>
      [one.querySelector('h3').textContent, one.querySelector('pre')?.textContent])`)

  /** The rules that the page breaks, with the elements. */
  async function violations(tab: Tab): Promise<unknown> {
    await tab.run(AXE)
    return tab.run(`axe.run({ resultTypes: ['violations'] }).then(({ violations }) =>
      violations.map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html.slice(0, 150))]))`)
  }

  test('numbers of an ONNX model, with the record of where the time went', async () => {
    const tab = await tryModel('simple')
    await fill(tab, 'INPUT0: values', '[[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]]')
    const text = await send(tab)
    expect(await outputs(tab)).toEqual([
      ['OUTPUT0 INT32 [1, 16]', '[[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]]'],
      ['OUTPUT1 INT32 [1, 16]', '[[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]]'],
    ])
    // The focus stays where the next request is sent from.
    await tab.run("document.querySelector('.try .primary').focus()")
    await tab.press('Enter')
    await tab.until("/Response after/.test(document.querySelector('.answer').textContent)")
    expect(await tab.run('document.activeElement.textContent')).toBe('Send')
    expect(text).toMatch(/Response after .*Where the time went .* in the server/)
    expect(await tab.run("document.querySelectorAll('.answer .record li').length")).toBeGreaterThan(0)
  })

  test('texts go in and come out as they are, and are no HTML', async () => {
    const tab = await tryModel('id_string')
    await fill(tab, 'INPUT0: text', `${HOSTILE}\n"grüße" 😀`)
    await send(tab)
    expect(await outputs(tab)).toEqual([['OUTPUT0 BYTES [1, 1]', `${HOSTILE}\n"grüße" 😀`]])
    expect(await tab.run("document.querySelectorAll('main img').length")).toBe(0)
  })

  test('a picture file goes in as bytes, and comes out as a picture', async () => {
    const tab = await tryModel('id_string')
    await fill(tab, 'from', 'file')
    await tab.until(`(() => {
      const [field, files] = [document.querySelector('input[type=file]'), new DataTransfer()]
      const bytes = Uint8Array.from(atob('${PNG}'), (one) => one.charCodeAt(0))
      files.items.add(new File([bytes], 'red.png'))
      field.files = files.files
      return field.dispatchEvent(new Event('change', { bubbles: true })) })()`)
    await tab.until("document.querySelector('.input img')?.naturalWidth === 1")
    await send(tab)
    await tab.until("document.querySelector('.answer img').naturalWidth === 1")
    expect(await tab.run("document.querySelector('.answer img').alt")).toMatch(
      /^element 0 of OUTPUT0: image\/png, \d+ bytes$/,
    )
  })

  /** Chooses a file, whose bytes are those of an expression. */
  async function choose(tab: Tab, name: string, bytes: string): Promise<void> {
    await fill(tab, 'from', 'file')
    await tab.until("document.querySelector('input[type=file]')")
    await tab.run(`(async () => {
      const [field, files] = [document.querySelector('input[type=file]'), new DataTransfer()]
      files.items.add(new File([${bytes}], ${JSON.stringify(name)}))
      field.files = files.files
      field.dispatchEvent(new Event('change', { bubbles: true })) })()`)
    await tab.until("document.querySelector('.input img')?.naturalWidth > 0")
  }
  const bytesText = (bytes: Buffer): string =>
    `Uint8Array.from(atob('${bytes.toString('base64')}'), (one) => one.charCodeAt(0))`

  /** Where the boxes stand on the shown picture, in its own pixels, with their texts; the upmost one first. */
  const marks = (tab: Tab): Promise<unknown> =>
    tab.until(`(() => {
      const image = document.querySelector('.boxes img')
      const frame = image.getBoundingClientRect()
      const scale = image.naturalWidth / frame.width
      const of = (one) => [one.left - frame.left, one.top - frame.top, one.right - frame.left, one.bottom - frame.top]
      const edges = [...document.querySelectorAll('.boxes rect:not(.edge)')]
      const texts = [...document.querySelectorAll('.boxes text')].map((one) => one.textContent)
      return edges.length > 0 && edges.map((one, i) =>
        [texts[i], ...of(one.getBoundingClientRect()).map((value) => Math.round(value * scale))]).toReversed() })()`)
  const rows =
    "[...document.querySelectorAll('.found tbody tr')].map((row) => [...row.cells].map((one) => one.textContent))"

  test('boxes stand on the picture, and a table lists them', async () => {
    const tab = await tryModel('detect')
    await choose(tab, 'things.png', bytesText(pngOf(320, 160, THINGS)))
    await send(tab)
    expect(await marks(tab)).toEqual([
      ['red thing 0.97', 40, 40, 140, 120],
      ['blue <b> 0.50', 200, 0, 310, 60],
    ])
    expect(await tab.run(rows)).toEqual([
      ['red thing', '0.969', '40, 40, 140, 120'],
      ['blue <b>', '0.500', '200, 0, 310, 60'],
    ])
    expect(await tab.run("document.querySelector('.boxes img').alt")).toBe(
      'things.png with 2 boxes, which the table lists',
    )
    expect(await violations(tab)).toEqual([])
    const names = "[...document.querySelectorAll('.answer details .tensor code')].map((one) => one.textContent)"
    expect(await tab.run(names)).toEqual(['BOXES', 'SCORES', 'CLASSES', 'LABELS', 'COUNT'])
    await tab.run("document.querySelector('.try form > details:last-of-type').open = true")
    expect(await tab.until('document.querySelector(\'[aria-label="The call in curl"]\')?.textContent')).toContain(
      '-F IMAGE=@things.png',
    )
  })

  test('a large picture is shown smaller, also on a phone, and its boxes with it', async () => {
    for (const width of [1280, PHONE]) {
      const tab = await tryModel('detect', { width, scheme: 'dark' })
      const large = THINGS.map((row) => [...row.slice(0, 4).map((value) => value * 10), ...row.slice(4)])
      await choose(tab, 'large.png', bytesText(pngOf(3200, 1600, large)))
      await send(tab)
      const [first, second] = (await marks(tab)) as [string, number, number, number, number][]
      for (const [found, expected] of [
        [first, [400, 400, 1400, 1200]],
        [second, [2000, 0, 3100, 600]],
      ] as const)
        found?.slice(1).forEach((value, i) => expect(Math.abs(Number(value) - (expected[i] ?? NaN))).toBeLessThan(9))
      expect(await tab.run("document.querySelector('.boxes img').width")).toBeLessThan(width)
      expect(await violations(tab)).toEqual([])
      expect(await tab.run('document.documentElement.scrollWidth - innerWidth')).toBeLessThanOrEqual(0)
    }
  })

  test('boxes are those of the picture as its EXIF turns it', async () => {
    const tab = await tryModel('detect')
    // A quarter turn to the right (6), in the only entry of a directory, behind the first two bytes of the JPEG.
    const exif = 'ffe100224578696600004d4d002a000000080001011200030000000100060000'.padEnd(72, '0')
    await choose(
      tab,
      'turned.jpg',
      `await (async () => {
        const canvas = Object.assign(document.createElement('canvas'), { width: 320, height: 160 })
        canvas.getContext('2d').fillRect(0, 0, 100, 50)
        const jpeg = await new Promise((done) => canvas.toBlob(done, 'image/jpeg'))
        const plain = new Uint8Array(await jpeg.arrayBuffer())
        const exif = Uint8Array.from('${exif}'.match(/../g), (one) => parseInt(one, 16))
        return new Blob([plain.subarray(0, 2), exif, plain.subarray(2)]) })()`,
    )
    await send(tab)
    expect(await tab.run("[document.querySelector('.boxes img').naturalWidth]")).toEqual([160])
    expect(await marks(tab)).toEqual([
      ['red thing 0.97', 0, 120, 60, 200],
      ['blue <b> 0.50', 120, 80, 160, 140],
    ])
  })

  test('classes of a picture are bars', async () => {
    const tab = await tryModel('sort')
    await choose(tab, 'one.png', bytesText(Buffer.from(PNG, 'base64')))
    await send(tab)
    const bars = "[...document.querySelectorAll('.found li')].map((one) => one.textContent)"
    expect(await tab.run(bars)).toEqual(['0.625 blue <b>', '0.250 red thing', '0.125 small'])
    expect(await violations(tab)).toEqual([])
  })

  test('responses of a decoupled model come one by one, and a stream can be stopped', async () => {
    const tab = await tryModel('repeat')
    for (const [name, value] of [
      ['IN', '7 8 9'],
      ['DELAY', '0 0 0'],
      ['WAIT', '0'],
    ] as const)
      await fill(tab, `${name}: values`, value)
    expect(await send(tab, "document.querySelectorAll('.events li').length === 3")).toMatch(/3 responses/)
    expect(await tab.run("[...document.querySelectorAll('.events code')].map((one) => one.textContent)")).toEqual([
      '{"IDX":0,"OUT":7}',
      '{"IDX":1,"OUT":8}',
      '{"IDX":2,"OUT":9}',
    ])
    expect(await tab.until("document.querySelector('.answer .record')?.textContent")).toMatch(/computing/)
    await fill(tab, 'DELAY: values', '0 0 600000')
    await send(tab, "document.querySelectorAll('.events li').length === 2")
    await press(tab, 'Stop')
    await tab.until("document.querySelector('.answer [role=alert]')?.textContent === 'stopped'")
  })

  test('a sequence counts its requests and ends', async () => {
    const tab = await tryModel('sums')
    const steps: unknown[] = []
    for (const value of ['5', '6', '7']) {
      await fill(tab, 'INPUT: values', value)
      if (value === '7') await tab.run("[...document.querySelectorAll('.check input')][1].click()")
      await send(tab, "document.querySelector('.answer .record') && !document.querySelector('[aria-disabled=true]')")
      steps.push(await outputs(tab))
    }
    const row = (value: string) => [['OUTPUT INT32 [1, 1]', `[[${value}]]`]]
    expect(steps).toEqual(['5', '11', '18'].map(row))
    const checks = "[...document.querySelectorAll('.check input')].map((one) => one.checked)"
    expect(await tab.run(checks)).toEqual([true, false])
  })

  test('integers beyond 2^53 keep their digits both ways', async () => {
    const tab = await tryModel('id_int64')
    await fill(tab, 'INPUT0: values', '9007199254740993, -9223372036854775808')
    await send(tab)
    expect(await outputs(tab)).toEqual([['OUTPUT0 INT64 [1, 2]', '[[9007199254740993, -9223372036854775808]]']])
  })

  test('a wrong value is named before it is sent', async () => {
    const tab = await tryModel('simple')
    await fill(tab, 'INPUT0: values', '1, two')
    await send(tab, `document.activeElement.matches('[aria-label="INPUT0: values"][aria-invalid=true]')`)
    expect(
      await tab.run("[...document.querySelectorAll('.try .bad')].map((one) => one.textContent).filter(Boolean)"),
    ).toEqual(["input 'INPUT0': 'two' is not a number"])
    await tab.run("document.querySelectorAll('.try details').forEach((one) => { one.open = true })")
    await tab.until("/There is no program/.test(document.querySelector('.try').textContent)")
    expect(await tab.run("/Copy/.test(document.querySelector('.try').textContent)")).toBe(false)
    await fill(tab, 'INPUT0: values', '1 2 3')
    await tab.until("document.querySelector('.hint').textContent === '3 values, but shape [1, 16] has 16'")
    const text = await send(tab, "/byte size/.test(document.querySelector('.answer .bad')?.textContent)")
    expect(text).toContain("input byte size mismatch for input 'INPUT0'")
  })

  test('a tensor of megabytes is summed up', async () => {
    const tab = await tryModel('echo')
    await fill(tab, 'from', 'ones')
    await fill(tab, 'dim 0', '2000000')
    await send(tab)
    expect(await tab.run("document.querySelector('.facts').textContent")).toBe('elements2,000,000min1max1mean1')
    expect(await tab.run("document.querySelector('.answer pre').textContent.length")).toBeLessThan(200)
  })

  test('neighbours of a text, documents by relevance, and classes as bars', async () => {
    const tab = await tryModel('embed')
    await fill(tab, 'Text', 'the cat')
    await fill(tab, 'Samples, one per line', 'a house\nthe cat\nparis is a city')
    await press(tab, 'Find neighbours')
    const rows = "[...document.querySelectorAll('.scores li')].map((one) => one.textContent)"
    const found = (await tab.until(`${rows}.length === 3 && ${rows}`)) as string[]
    expect(found[0]).toBe('1.000 the cat')
    const scores = found.map((one) => Number(one.split(' ')[0]))
    expect(scores).toEqual(scores.toSorted((a, b) => b - a))
    const ranked = await tryModel('rerank')
    await press(ranked, 'Rank documents')
    const ranking = (await ranked.until(`${rows}.length === 12 && ${rows}`)) as string[]
    const relevance = ranking.map((one) => Number(one.split(' ')[0]))
    expect(relevance).toEqual(relevance.toSorted((a, b) => b - a))
    const classes = await tryModel('labels')
    await press(classes, 'Classify')
    const shares = (await classes.until(`${rows}.length === 3 && ${rows}`)) as string[]
    expect(shares.map((one) => one.split(' ')[1]).toSorted()).toEqual(['bad', 'good', 'unknown'])
    expect(shares.reduce((sum, one) => sum + Number(one.split(' ')[0]), 0)).toBeCloseTo(1, 2)
  })

  test('an operation of the documentation can be tried: status, headers and body', async () => {
    const tab = await open('/docs?model=simple#modelInfer')
    await tab.until("document.querySelector('#modelInfer textarea').value.includes('INPUT1')")
    await tab.run("document.querySelector('#modelInfer button.primary').click()")
    await tab.until("/^200/.test(document.querySelector('#modelInfer form > [role=status]').textContent)")
    const [headers, body] = (await tab.run(
      "[...document.querySelectorAll('#modelInfer form > pre')].map((one) => one.textContent)",
    )) as string[]
    expect(headers).toMatch(/^content-type: application\/json$/m)
    expect(JSON.parse(body ?? '')).toMatchObject({
      model_name: 'simple',
      outputs: [{ name: 'OUTPUT0', datatype: 'INT32', shape: [1, 16], data: Array(16).fill(2) }, { name: 'OUTPUT1' }],
    })
    const curl = await tab.run("document.querySelector('#modelInfer details pre').textContent")
    expect(curl).toMatch(/^curl -i 'http.*\/v2\/models\/simple\/infer' \\/)
    const whole = await open('/docs#modelReady')
    await whole.until("document.querySelector('#modelReady form input')")
    await fill(whole, 'model', 'nothing')
    await whole.run("document.querySelector('#modelReady button.primary').click()")
    await whole.until("/^400/.test(document.querySelector('#modelReady form > [role=status]').textContent)")
    await whole.until("[...document.querySelectorAll('datalist option')].some((one) => one.value === 'simple')")
  })

  test('the first page says what the server is, and leads to its models', async () => {
    const tab = await open('/')
    await tab.until("document.querySelector('table')")
    const text = (await tab.run("document.querySelector('main').textContent")) as string
    expect(text).toMatch(/^Nereid \d+\.\d+.*The server is ready.*API of triton \d/)
    const links = "[...document.querySelectorAll('td a')].map((one) => [one.textContent, one.getAttribute('href')])"
    expect(await tab.run(links)).toContainEqual(['simple', '/console#model=simple&version=1'])
    expect(text).toContain(HOSTILE)
    expect(await tab.run("document.querySelectorAll('main img').length")).toBe(0)
  })

  test('no rule of accessibility is broken, and a phone needs no scrolling sideways', async () => {
    for (const scheme of ['light', 'dark'] as const) {
      const tab = await tryModel('simple', { width: PHONE, scheme })
      await send(tab)
      await tab.run("document.querySelectorAll('.try details').forEach((one) => { one.open = true })")
      await tab.until('document.querySelector(\'[aria-label="The call in curl"]\')')
      expect(await violations(tab)).toEqual([])
      expect(await tab.run('document.documentElement.scrollWidth - innerWidth')).toBe(0)
      const streaming = await tryModel('repeat', { width: PHONE, scheme })
      await send(streaming, "document.querySelectorAll('.events li').length === 1")
      expect(await violations(streaming)).toEqual([])
      for (const path of ['/', '/docs#logSettings', '/docs?model=embed']) {
        const other = await open(path, { width: PHONE, scheme })
        await other.until("document.querySelector('table, .try, .operation-try')")
        // A wide answer scrolls in its own place.
        if (path === '/docs#logSettings') await send(other, "document.querySelectorAll('form > pre').length === 2")
        expect([path, await violations(other)]).toEqual([path, []])
        expect(await other.run('document.documentElement.scrollWidth - innerWidth')).toBe(0)
      }
    }
  })
})

test('a body of the documentation is made of the protocol: no schema hides another one', async () => {
  const { SCHEMAS } = await import('../../src/api/openapi/schemas.js')
  const { TEXT_SCHEMAS } = await import('../../src/api/openapi/generated/text.js')
  expect(Object.keys(SCHEMAS).filter((name) => name in TEXT_SCHEMAS)).toEqual([])
})
