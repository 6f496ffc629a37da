/** The frame of all views, and the field for a key. */

import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import type { Api } from './api.js'

export function Shell({
  views,
  path,
  children,
}: {
  views: readonly { path: string; title: string }[]
  path: string
  children: ComponentChildren
}) {
  return (
    <>
      <a class="skip" href="#main">
        Skip to the contents
      </a>
      <header class="top">
        <a class="brand" href="/">
          <Mark /> Nereid
        </a>
        <nav aria-label="Pages">
          {views.map((view) => (
            <a key={view.path} href={view.path} aria-current={view.path === path ? 'page' : undefined}>
              {view.title}
            </a>
          ))}
        </nav>
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
    </>
  )
}

/** After a move to another view: a screen reader says where the user is. */
export function focusHeading(): void {
  const heading = document.querySelector<HTMLElement>('main h1')
  heading?.setAttribute('tabindex', '-1')
  heading?.focus()
}

/** Three waves. */
const Mark = () => (
  <svg class="mark" viewBox="0 0 24 24" width="22" height="22" aria-hidden="true">
    <path d="M2 7q5-5 10 0t10 0M2 13q5-5 10 0t10 0M2 19q5-5 10 0t10 0" />
  </svg>
)

/** Asks for a key; `text` is what the server said. */
export function KeyForm({ api, text }: { api: Api; text: string }) {
  const [key, setKey] = useState('')
  const send = (event: Event) => {
    event.preventDefault()
    api.key = key.trim()
  }
  return (
    <form class="card key" onSubmit={send}>
      <h2>This needs a key</h2>
      <p role="alert">
        {api.key === ''
          ? 'The server shows this only to clients with a key. Type your key.'
          : 'The server does not accept this key. Check it, or type another one.'}
        {/* Header fields are for programs. */}
        {!/authorization/i.test(text) && ` The server responded: ${text}`}
      </p>
      <label for="key">Key</label>
      <input
        id="key"
        type="password"
        autocomplete="off"
        spellcheck={false}
        value={key}
        onInput={(event) => setKey(event.currentTarget.value)}
      />
      <button type="submit" class="primary">
        Use this key
      </button>
      <p class="quiet">The key stays in the memory of this page: closing or reloading the page removes it.</p>
    </form>
  )
}
