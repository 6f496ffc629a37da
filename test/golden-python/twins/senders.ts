/** Snippets that answer by the senders of a model that is not decoupled. */

import { setTimeout } from 'node:timers/promises'
import { InferenceResponse } from 'nereid/backend'
import type { Snippet } from './scope.ts'
import { T, attempt, out } from './show.ts'

const FINAL = { final: true }

export const senders: Record<string, Snippet> = {
  'sender.one.final': ({ sender }) => {
    void sender.send(out('sent'), FINAL)
    return [null]
  },
  'sender.one.final.none': ({ sender }) => void sender.send(out('sent'), FINAL),
  'sender.one.final.const': ({ sender }) => {
    void sender.send(out('sent'), FINAL)
    return [null]
  },
  'sender.one.then.final': async ({ sender }) => {
    await sender.send(out('sent'))
    await sender.end()
    return [null]
  },
  'sender.two': async ({ keep, sender }) => {
    keep['r'] = [await attempt(() => sender.send(out('a'))), await attempt(() => sender.send(out('b')))]
    await sender.end()
    return [null]
  },
  'sender.two.what': ({ keep }) => [out(keep['r'])],
  'sender.final.first': async ({ sender }) => {
    const tries = [await attempt(() => sender.end()), await attempt(() => sender.end())]
    void sender.send(out(tries), FINAL)
    return [null]
  },
  'sender.closed': async ({ keep, sender }) => {
    await sender.send(out('x'), FINAL)
    keep['r'] = await attempt(() => sender.send(out('y')))
    return [null]
  },
  'sender.error': ({ sender }) => {
    void sender.send(InferenceResponse.error('NOT_FOUND', 'by sender'), FINAL)
    return [null]
  },
  'sender.thread': ({ sender }) => {
    void setTimeout(200).then(() => sender.send(out('from thread'), FINAL))
    return [null]
  },
  'sender.thread.none': ({ sender }) => void setTimeout(200).then(() => sender.send(out('from thread'), FINAL)),
  'sender.and.return': ({ sender }) => {
    void sender.send(out('sent'), FINAL)
    return [out('returned')]
  },
  'sender.same': ({ request, sender }) => [out([request.sender === sender, sender.cancelled, request.cancelled])],
  'sender.params': ({ sender }) => {
    void sender.send(new InferenceResponse({ outputs: [T('Y', [1])], parameters: { k: 'v' } }), FINAL)
    return [null]
  },
  'sender.unused': ({ sender }) => [out(sender.cancelled ? 'cancelled' : 'by return')],
  'sender.after': () => [out('fine')],
  'sender.async': async ({ sender }) => {
    await setTimeout(10)
    void sender.send(out('async sent'), FINAL)
    return [null]
  },
  'stat.sender': ({ sender }) => {
    void sender.send(out(1), FINAL)
    return [null]
  },
}
