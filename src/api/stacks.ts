/** Stacks of worker threads that do not return: the debugger of Node interrupts them, also in an endless loop. */

import { Session } from 'node:inspector'
import type { Worker } from 'node:worker_threads'
import { framesOf } from '../javascript/errors.js'

/** Time for the worker to run JavaScript. */
const PAUSE_MS = 300

/** The frames of the model that a worker runs, without those of the runtime; null while it runs no JavaScript. */
export function stackOf(worker: Worker): Promise<string[] | null> {
  const session = new Session()
  session.connect()
  return new Promise((resolve) => {
    let to = ''
    const end = (stack: string[] | null) => {
      clearTimeout(timer)
      // Lets the worker go on; one that is left as it is could not even be ended.
      session.post('NodeWorker.detach', { sessionId: to }, () => {
        session.disconnect()
        resolve(stack)
      })
    }
    const timer = setTimeout(end, PAUSE_MS, null)
    const send = (id: number, method: string, params?: object) =>
      session.post('NodeWorker.sendMessageToWorker', { sessionId: to, message: JSON.stringify({ id, method, params }) })
    session.on('NodeWorker.attachedToWorker', ({ params }) => {
      if (!params.workerInfo.title.startsWith(`[worker ${worker.threadId}]`)) return
      to = params.sessionId
      send(1, 'Debugger.enable')
      send(2, 'Debugger.pause')
    })
    session.on('NodeWorker.receivedMessageFromWorker', ({ params }) => {
      if (params.sessionId !== to) return
      const {
        id,
        method,
        params: told,
        result,
      } = JSON.parse(params.message) as {
        id?: number
        method?: string
        params: { callFrames: { callFrameId: string }[] }
        result?: { result?: { value?: unknown } }
      }
      if (method === 'Debugger.paused') {
        // The debugger has the lines that Node compiled, a stack those of the model's own file.
        const { callFrameId } = told.callFrames[0] ?? {}
        send(3, 'Debugger.evaluateOnCallFrame', { callFrameId, expression: 'new Error().stack' })
      } else if (id === 3) {
        const frames = framesOf(String(result?.result?.value)).filter((line) => !line.includes(' at eval '))
        // An event loop that only woke up has none.
        end(frames.length === 0 ? null : frames)
      }
    })
    session.post('NodeWorker.enable', { waitForDebuggerOnStart: false })
  })
}
