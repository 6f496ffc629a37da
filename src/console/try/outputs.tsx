/** Outputs by datatype and shape. */

import { useEffect, useMemo, useState } from 'preact/hooks'
import type { Tensor } from '../../../client/src/tensor.js'
import { TEXTS_MAX, bytesShown, numbersShown, type BytesShown } from './show.js'

export function OutputView({ tensor }: { tensor: Tensor }) {
  return (
    <section class="tensor">
      <h3>
        <code>{tensor.name}</code>{' '}
        <span class="quiet">
          {tensor.datatype} [{tensor.shape.join(', ')}]
        </span>
      </h3>
      {tensor.datatype === 'BYTES' ? <Texts tensor={tensor} /> : <Numbers tensor={tensor} />}
    </section>
  )
}

function Numbers({ tensor }: { tensor: Tensor }) {
  const { text, summary } = useMemo(() => numbersShown(tensor), [tensor])
  return (
    <>
      {summary !== null && (
        <dl class="facts">
          {summary.map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      )}
      <Pre label={`values of ${tensor.name}`} text={text} />
    </>
  )
}

function Texts({ tensor }: { tensor: Tensor }) {
  const elements = useMemo(() => tensor.as('BYTES'), [tensor])
  const shown = useMemo(() => elements.slice(0, TEXTS_MAX).map(bytesShown), [elements])
  const more = elements.length - shown.length
  return (
    <>
      {shown.map((one, i) => (
        <Element key={i} one={one} label={`element ${i} of ${tensor.name}`} />
      ))}
      {more > 0 && <p class="quiet">And {more.toLocaleString('en')} more elements.</p>}
    </>
  )
}

function Element({ one, label }: { one: BytesShown; label: string }) {
  if (one.kind === 'image') return <Picture bytes={one.bytes} type={one.type} label={label} />
  const unit = one.kind === 'text' ? 'characters' : 'bytes'
  return (
    <>
      <Pre label={label} text={one.kind === 'text' ? one.text : `${one.text}${one.more > 0 ? ' …' : ''}`} />
      {one.more > 0 && (
        <p class="quiet">
          And {one.more.toLocaleString('en')} more {unit}.
        </p>
      )}
    </>
  )
}

/** Address of an image, or '' at first; it is of this page only, and ends with the component. */
export function usePicture(bytes: Uint8Array, type: string): string {
  const [url, setUrl] = useState('')
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([bytes as Uint8Array<ArrayBuffer>], { type }))
    setUrl(made)
    return () => URL.revokeObjectURL(made)
  }, [bytes, type])
  return url
}

/** An image from bytes. */
export function Picture({ bytes, type, label }: { bytes: Uint8Array; type: string; label: string }) {
  const url = usePicture(bytes, type)
  const text = `${label}: ${type}, ${bytes.length.toLocaleString('en')} bytes`
  if (url === '') return null
  return (
    <figure class="picture">
      <img src={url} alt={text} />
      <figcaption>{text}</figcaption>
    </figure>
  )
}

/** Text that can be scrolled by keyboard too; lines of code are not broken. */
export const Pre = ({ label, text, isCode = false }: { label: string; text: string; isCode?: boolean }) => (
  <pre class={isCode ? 'values' : 'values wrap'} role="region" aria-label={label} tabIndex={0}>
    {text}
  </pre>
)
