/** The reply that a whole view is made of, asked again with each key that is typed. */

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { ApiError, type Api } from './api.js'
import { KeyForm, focusHeading } from './shell.js'

export interface Reply<Value> {
  value: Value | null
  error: Error | null
}

export function useReply<Value>(api: Api, path: string, init?: RequestInit): Reply<Value> {
  const [reply, setReply] = useState<Reply<Value>>({ value: null, error: null })
  const [key, setKey] = useState(api.key)
  useEffect(() => api.onKey(() => setKey(api.key)), [api])
  useEffect(() => {
    api.json(path, init).then(
      (value) => setReply({ value: value as Value, error: null }),
      (error: Error) => setReply({ value: null, error }),
    )
  }, [key])
  return reply
}

/** Shown until the reply is there: the error, with a field for a key if that helps. */
export function Waiting({ api, title, path, error }: { api: Api; title: string; path: string; error: Error | null }) {
  const heading = useRef<HTMLHeadingElement>(null)
  // The view that takes this place has a heading of its own: it gets the focus that this one had.
  useLayoutEffect(
    () => () => {
      if (document.activeElement === heading.current) setTimeout(focusHeading)
    },
    [],
  )
  return (
    <>
      <h1 ref={heading}>{title}</h1>
      {error === null ? (
        <p class="quiet">Reading {path} …</p>
      ) : error instanceof ApiError && error.wantsKey ? (
        <KeyForm api={api} text={error.message} />
      ) : (
        <p role="alert" class="bad">
          {path}: {error.message}
        </p>
      )}
    </>
  )
}
