/** Buttons that load and unload a model. */

import { useEffect, useRef, useState } from 'preact/hooks'
import type { Api } from '../api.js'
import { OutcomeText, useAction } from './parts.js'
import type { Picture, Version } from './picture.js'
import { BY_HAND } from './settings.js'
import { unloadText } from './unload.js'

/** Load and unload, where the server and the key allow them. */
export function Control({
  version,
  picture: { hello, versions },
  api,
}: {
  version: Version
  picture: Picture
  api: Api
}) {
  const { name, state } = version
  const { busy, outcome, run } = useAction()
  const [isAsking, setAsking] = useState(false)
  const keep = useRef<HTMLButtonElement>(null)
  const load = useRef<HTMLButtonElement>(null)
  const unload = useRef<HTMLButtonElement>(null)
  const act = (what: 'load' | 'unload') =>
    run(async () => {
      await api.post(`/v2/repository/models/${encodeURIComponent(name)}/${what}`, {})
      return `${name}: ${what === 'load' ? 'loaded' : 'unloading, once its requests have ended'}.`
    })
  const answered = (isSure: boolean) => {
    setAsking(false)
    if (isSure) act('unload')
    // The button that had the focus goes, and with the model the one that asked.
    setTimeout(() => (isSure ? load : unload).current?.focus())
  }
  useEffect(() => (isAsking ? keep.current?.focus() : undefined), [isAsking])
  if (hello === null || !hello.may.load) return null
  if (!hello.explicit) return <span class="quiet">{BY_HAND}</span>
  const all = [...versions.values()].filter((one) => one.name === name && one.state === 'READY')
  const escaped = (event: KeyboardEvent) => {
    if (event.key !== 'Escape') return
    event.preventDefault()
    answered(false)
  }
  return (
    <>
      <button type="button" ref={load} aria-disabled={busy} onClick={() => busy || act('load')}>
        {state === 'READY' ? 'Load again' : 'Load'}
      </button>
      {state === 'READY' && (
        <button type="button" ref={unload} disabled={busy || isAsking} onClick={() => setAsking(true)}>
          Unload
        </button>
      )}
      {isAsking && (
        <div class="ask" role="group" aria-labelledby="ask" onKeyDown={escaped}>
          <p id="ask">{unloadText(name, all)}</p>
          <button type="button" class="primary" onClick={() => answered(true)}>
            Unload
          </button>
          <button type="button" ref={keep} onClick={() => answered(false)}>
            Keep
          </button>
        </div>
      )}
      {busy && <span class="quiet">working …</span>}
      <OutcomeText outcome={outcome} />
    </>
  )
}
