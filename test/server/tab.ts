/** A real Chromium, if there is one and it is asked for with --nightly. */
import { spawn, type ChildProcess } from 'node:child_process'
import type { Readable, Writable } from 'node:stream'
import { ask } from '../../scripts/lib/run.mjs'

export const CHROMIUM =
  process.env['NEREID_NIGHTLY'] === undefined
    ? undefined
    : ['chromium', 'chromium-browser', 'google-chrome'].find((name) => ask(name, ['--version']) !== null)
if (CHROMIUM === undefined)
  process.stdout.write('absent: Chromium for the pages: it is not installed, or not asked for with --nightly\n')
if (CHROMIUM === undefined)
  process.stdout.write('absent: Chromium for the pages: it is not installed, or not asked for with --nightly\n')

export function startChromium(profile: string, more: readonly string[] = []): ChildProcess {
  const flags = [
    '--headless=new',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-dev-shm-usage',
    '--no-first-run',
    `--user-data-dir=${profile}`,
    '--remote-debugging-pipe',
    ...more,
  ]
  const stdio = ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'] as const
  const browser = spawn(CHROMIUM ?? '', flags, { detached: true, stdio: [...stdio] })
  // Every tab listens to it.
  browser.setMaxListeners(0)
  ;(browser.stdio[4] as Readable).setMaxListeners(0)
  return browser
}

export async function endChromium(browser: ChildProcess): Promise<void> {
  if (browser.exitCode !== null) return
  const ended = new Promise((resolve) => browser.once('exit', resolve))
  // The whole group: other processes would continue to write to the profile.
  process.kill(-(browser.pid as number), 'SIGKILL')
  await ended
}

/** A tab, driven over the pipe of the DevTools protocol: JSON messages, each followed by a zero. */
export class Tab {
  readonly #browser: ChildProcess
  readonly #waiting = new Map<
    number,
    { resolve: (result: Record<string, unknown>) => void; reject: (error: Error) => void }
  >()
  #session: string | undefined
  #target = ''
  /** Ids are unique across tabs, because each tab hears the responses to all. */
  static #last = 0

  constructor(browser: ChildProcess) {
    this.#browser = browser
    let rest = ''
    ;(browser.stdio[4] as Readable).setEncoding('utf8').on('data', (chunk: string) => {
      const parts = (rest + chunk).split('\0')
      rest = parts.pop() ?? ''
      for (const part of parts)
        this.#take(JSON.parse(part) as { id?: number; result?: Record<string, unknown>; error?: { message: string } })
    })
    browser.once('exit', (code) => {
      for (const { reject } of this.#waiting.values()) reject(new Error(`Chromium ended with ${code}`))
    })
  }

  #take({ id, result, error }: { id?: number; result?: Record<string, unknown>; error?: { message: string } }): void {
    const waiting = this.#waiting.get(id ?? 0)
    this.#waiting.delete(id ?? 0)
    if (error !== undefined) waiting?.reject(new Error(error.message))
    else waiting?.resolve(result ?? {})
  }

  send(method: string, params: object = {}): Promise<Record<string, unknown>> {
    const id = (Tab.#last += 1)
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject })
      const session = this.#session === undefined ? {} : { sessionId: this.#session }
      ;(this.#browser.stdio[3] as Writable).write(`${JSON.stringify({ id, method, params, ...session })}\0`)
    })
  }

  async attach(width: number): Promise<void> {
    const { targetId } = await this.send('Target.createTarget', { url: 'about:blank' })
    this.#target = targetId as string
    this.#session = (await this.send('Target.attachToTarget', { targetId, flatten: true }))['sessionId'] as string
    await this.send('Emulation.setDeviceMetricsOverride', {
      width,
      height: 800,
      deviceScaleFactor: 1,
      mobile: width < 500,
    })
  }

  async close(): Promise<void> {
    this.#session = undefined
    await this.send('Target.closeTarget', { targetId: this.#target })
  }

  /** Resolves when the page and its scripts are loaded. */
  async open(url: string): Promise<void> {
    await this.send('Page.navigate', { url })
    await this.run(
      `new Promise((done) => { const look = () => location.href === ${JSON.stringify(url)} && ` +
        "document.readyState === 'complete' ? done() : setTimeout(look, 10); look() })",
    )
  }

  /** The scheme that the system of a user prefers. */
  async prefer(scheme: 'light' | 'dark'): Promise<void> {
    await this.send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] })
  }

  /** Presses a key, such as `Tab`, `Enter` or `Escape`. */
  async press(key: string): Promise<void> {
    const code = { Tab: 9, Enter: 13, Escape: 27 }[key] ?? key.charCodeAt(0)
    const event = { key, code: key, windowsVirtualKeyCode: code, ...(key === 'Enter' ? { text: '\r' } : {}) }
    await this.send('Input.dispatchKeyEvent', { type: 'keyDown', ...event })
    await this.send('Input.dispatchKeyEvent', { type: 'keyUp', ...event })
  }

  /** Resolves with the value of an expression once it is true. */
  async until(expression: string): Promise<unknown> {
    return this.run(`new Promise((done) => {
      const look = () => {
        let value
        try { value = ${expression} } catch { value = false }
        if (value) done(value)
        else setTimeout(look, 20)
      }
      look()
    })`)
  }

  async picture(): Promise<Buffer> {
    return Buffer.from((await this.send('Page.captureScreenshot', { format: 'png' }))['data'] as string, 'base64')
  }

  /** Evaluates an expression with the rights of a user's click. */
  async run(expression: string): Promise<unknown> {
    for (;;) {
      try {
        const { result, exceptionDetails } = (await this.send('Runtime.evaluate', {
          expression,
          awaitPromise: true,
          returnByValue: true,
          userGesture: true,
        })) as { result: { value?: unknown }; exceptionDetails?: object }
        if (exceptionDetails !== undefined) throw new Error(JSON.stringify(exceptionDetails))
        return result.value
      } catch (error) {
        // The page was replaced by the next one during the call.
        if (!/navigat|context/i.test(String(error)) || !expression.startsWith('new Promise')) throw error
      }
    }
  }
}
