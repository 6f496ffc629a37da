/** The pages in a real Chromium, on a phone's screen and from an insecure origin. Runs with --nightly. */
import type { ChildProcess } from 'node:child_process'
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { extname, join, normalize } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { buildDocs } from '../../scripts/docs.mjs'
import { CHROMIUM, Tab, endChromium, startChromium } from '../server/tab.js'

const TYPES: Record<string, string> = {
  '.html': 'text/html; charset=utf-8',
  '.css': 'text/css',
  '.js': 'text/javascript',
  '.svg': 'image/svg+xml',
}

describe.skipIf(CHROMIUM === undefined)('Chromium', { timeout: 60_000 }, () => {
  const work = mkdtempSync(join(tmpdir(), 'nereid-pages-'))
  const out = join(work, 'site')
  let browser: ChildProcess
  let front: Server
  let origin = ''

  beforeAll(async () => {
    await buildDocs(out)
    front = createServer(({ url = '/' }, answer) => {
      const file = join(out, normalize(new URL(url, 'http://x').pathname))
      if (!existsSync(file)) answer.writeHead(404).end()
      else answer.writeHead(200, { 'content-type': TYPES[extname(file)] ?? 'text/plain' }).end(readFileSync(file))
    })
    await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve))
    // Plain HTTP from another name than localhost is no secure origin.
    origin = `http://docs.test:${(front.address() as AddressInfo).port}`
    browser = startChromium(join(work, 'profile'), ['--host-resolver-rules=MAP docs.test 127.0.0.1'])
  }, 120_000)
  afterAll(async () => {
    await endChromium(browser)
    front.closeAllConnections()
    front.close()
    rmSync(work, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
  })

  async function tab(width: number, page: string): Promise<Tab> {
    const one = new Tab(browser)
    await one.attach(width)
    await one.open(`${origin}/${page}`)
    return one
  }

  test('on a phone the list of pages opens right below the header', async () => {
    const phone = await tab(390, 'operating.html')
    const opened = await phone.run(`(async () => {
      scrollTo(0, 3000)
      await new Promise(requestAnimationFrame)
      document.querySelector('.menu').click()
      const box = document.querySelector('#the-pages').getBoundingClientRect()
      const first = document.querySelector('#the-pages a').getBoundingClientRect()
      const top = document.elementFromPoint(first.left + 5, first.top + 5)
      return {
        scrolled: scrollY > 1000,
        below: box.top === document.querySelector('header').getBoundingClientRect().bottom,
        inside: box.bottom <= innerHeight,
        seen: (top?.closest('#the-pages') ?? null) !== null,
        wide: document.documentElement.scrollWidth,
      }
    })()`)
    expect(opened).toEqual({ scrolled: true, below: true, inside: true, seen: true, wide: 390 })
    // A click elsewhere and Escape close it.
    const closed = await phone.run(
      "(document.querySelector('article').click(), " +
        "getComputedStyle(document.querySelector('#the-pages')).display + " +
        "document.querySelector('.menu').getAttribute('aria-expanded'))",
    )
    expect(closed).toBe('nonefalse')
  })

  test('code is copied without a secure origin', async () => {
    const page = await tab(1200, 'start.html')
    const output = await page.run(`(async () => {
      const code = document.querySelector('.code')
      let copied = null
      document.addEventListener('copy', () => (copied = getSelection().toString()), { once: true })
      code.querySelector('button').click()
      while (code.querySelector('button').textContent === 'Copy') await new Promise(requestAnimationFrame)
      return {
        clipboard: typeof navigator.clipboard,
        button: code.querySelector('button').textContent,
        same: copied?.trim() === code.querySelector('code').textContent.trim(),
      }
    })()`)
    expect(output).toEqual({ clipboard: 'undefined', button: 'Copied', same: true })
  })

  test('each result of the search has a title that can be seen, on a phone too', async () => {
    for (const width of [390, 1200]) {
      const page = await tab(width, 'index.html')
      const seen = (await page.run(`(async () => {
        const field = document.querySelector('.search input')
        const found = {}
        for (const words of ['autoscaling', 'helm', 'memory', 'embeddings', 'targets', 'changelog']) {
          field.value = words
          field.dispatchEvent(new Event('input'))
          const list = document.querySelector('.search ol')
          while (list.hidden || list.dataset.words !== words) await new Promise(requestAnimationFrame)
          found[words] = [...list.querySelectorAll('strong')].map((title) => {
            const box = title.getBoundingClientRect()
            return [title.textContent, box.left >= 0 && box.width > 0]
          })
        }
        return found
      })()`)) as Record<string, [string, boolean][]>
      for (const [words, titles] of Object.entries(seen)) {
        expect(titles.length, words).toBeGreaterThan(0)
        for (const [title, isSeen] of titles)
          expect([title, isSeen], words).toEqual([expect.stringMatching(/^[^:\s]/), true])
      }
    }
  })
})
