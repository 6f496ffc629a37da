/** examples/browser: a page that Vite builds, of another origin than the server; in a real Chromium with --nightly. */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { freePorts } from '../../scripts/lib/ports.mjs'
import { ROOT, TestServer, repositories } from '../server/harness.js'
import { CHROMIUM, Tab, endChromium, startChromium } from '../server/tab.js'

const EXAMPLE = join(ROOT, 'examples/browser')
const work = mkdtempSync(join(tmpdir(), 'nereid-vite-'))
const page = join(work, 'page')
const repository = repositories()

type Manifest = Record<'dependencies' | 'devDependencies', Record<string, string>>
const manifest = JSON.parse(readFileSync(join(EXAMPLE, 'package.json'), 'utf8')) as Manifest

/** Runs a tool of the example with its arguments, as npm does. */
const script = (name: string): string => join(ROOT, 'node_modules', name)
const VITE = script('vite/bin/vite.js')
const env = { ...process.env, NODE_ENV: 'production', NO_COLOR: '1' }

let server: TestServer
let origin = ''

beforeAll(async () => {
  cpSync(EXAMPLE, page, { recursive: true, filter: (file) => !/node_modules|dist/.test(file.slice(EXAMPLE.length)) })
  // As `npm install` leaves it. The tools are those of this clone.
  mkdirSync(join(page, 'node_modules'))
  symlinkSync(join(ROOT, 'client'), join(page, 'node_modules/nereid-client'))
  for (const name of Object.keys(manifest.devDependencies)) symlinkSync(script(name), join(page, 'node_modules', name))
  const [port] = await freePorts(1)
  origin = `http://127.0.0.1:${port}`
  server = await TestServer.start(repository.path('main'), [`--http-cors-origin=${origin}`])
  execFileSync(process.execPath, [script('typescript/bin/tsc'), '-p', page], { stdio: 'inherit' })
  execFileSync(process.execPath, [VITE, 'build'], {
    cwd: page,
    env: { ...env, VITE_SERVER: server.url },
    stdio: 'pipe',
  })
})
afterAll(async () => {
  await server.stop()
  repository.remove()
  rmSync(work, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
})

test('the tools of the example are pinned to the versions that this test runs', () => {
  for (const [name, version] of Object.entries(manifest.devDependencies)) {
    const installed = JSON.parse(readFileSync(join(script(name), 'package.json'), 'utf8')) as { version: string }
    expect([name, version]).toEqual([name, installed.version])
  }
})

test('the built page has the client for browsers, without modules of Node', () => {
  const [file = '', ...more] = readdirSync(join(page, 'dist/assets'))
  expect(more).toEqual([])
  const code = readFileSync(join(page, 'dist/assets', file), 'utf8')
  expect(code).toContain('Inference-Header-Content-Length')
  expect(code).not.toMatch(/["'`]node:/)
})

describe.skipIf(CHROMIUM === undefined).each(['dev', 'preview'])(
  'vite %s in Chromium',
  { timeout: 60_000 },
  (command) => {
    let front: ChildProcess
    let browser: ChildProcess

    beforeAll(async () => {
      const { hostname, port } = new URL(origin)
      const args = [VITE, command, '--host', hostname, '--port', port, '--strictPort']
      const vite = spawn(process.execPath, args, {
        cwd: page,
        env: { ...env, VITE_SERVER: server.url },
        stdio: ['ignore', 'pipe', 'inherit'],
      })
      front = vite
      for await (const line of createInterface(vite.stdout)) if (line.includes(origin)) break
      browser = startChromium(join(work, command))
    })
    afterAll(async () => {
      await endChromium(browser)
      const ended = once(front, 'exit')
      front.kill()
      await ended
    })

    /** Text that the page of this origin shows after a click. */
    async function shown(at: string, numbers: string): Promise<unknown> {
      const tab = new Tab(browser)
      await tab.attach(1200)
      await tab.open(`${at}/`)
      await tab.run(`document.querySelector('input').value = ${JSON.stringify(numbers)}`)
      await tab.run("document.querySelector('button').click()")
      return await tab.until("document.querySelector('output').textContent")
    }

    test('a page shows the answer of the server', async () => {
      expect(await shown(origin, '1 2 3.5')).toBe('FP32 [1, 1]: 6.5')
    })

    test('a page of another origin gets no answer', async () => {
      expect(await shown(origin.replace('127.0.0.1', 'localhost'), '1')).toMatch(/^DISCONNECTED: /)
    })
  },
)
