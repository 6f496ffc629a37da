/** A picture with the boxes that a model found, or the classes of a picture as bars. */

import { useState } from 'preact/hooks'
import { Bar, Table } from '../console/parts.js'
import { FINDINGS_MAX, boxText, captionOf, drawnOf, type Finding } from './findings.js'
import { usePicture } from './outputs.js'

export interface PictureFile {
  name: string
  type: string
  bytes: Uint8Array
}

export function FoundView({ found, picture }: { found: readonly Finding[]; picture: PictureFile }) {
  const shown = found.slice(0, FINDINGS_MAX)
  const more = found.length - shown.length
  const isBoxes = shown.every(({ box }) => box !== null)
  return (
    <section class="found">
      {isBoxes ? <Boxes found={shown} picture={picture} /> : <Scores rows={shown} />}
      {more > 0 && <p class="quiet">And {more.toLocaleString('en')} more.</p>}
    </section>
  )
}

function Boxes({ found, picture: { name, type, bytes } }: { found: readonly Finding[]; picture: PictureFile }) {
  const url = usePicture(bytes, type)
  // Browsers turn a picture as its EXIF says, and so does the server.
  const [[width, height], setSize] = useState([0, 0])
  const count = `${found.length.toLocaleString('en')} ${found.length === 1 ? 'box' : 'boxes'}`
  return (
    <>
      <figure class="boxes">
        {url !== '' && (
          <img
            src={url}
            alt={`${name} with ${count}, which the table lists`}
            onLoad={({ currentTarget: { naturalWidth, naturalHeight } }) => setSize([naturalWidth, naturalHeight])}
          />
        )}
        {width > 0 && (
          <svg aria-hidden="true">
            {/* The first box has the best score, and stands above the others. */}
            {found.toReversed().map((one, i) => (
              <BoxMark key={i} one={one} width={width} height={height} />
            ))}
          </svg>
        )}
      </figure>
      {found.length === 0 ? (
        <p>The model found nothing.</p>
      ) : (
        <Table
          caption="Boxes"
          columns={[
            { title: 'label' },
            { title: 'score', number: true },
            { title: 'left, top, right, bottom', number: true },
          ]}
          rows={found.map(({ label, score, box }, i) => ({
            key: String(i),
            cells: [label, score?.toFixed(3), box && boxText(box)],
          }))}
        />
      )}
    </>
  )
}

function BoxMark({ one, width, height }: { one: Finding; width: number; height: number }) {
  if (one.box === null) return null
  const drawn = drawnOf(one.box, width, height)
  const at = { x: `${drawn.x}%`, y: `${drawn.y}%`, width: `${drawn.width}%`, height: `${drawn.height}%` }
  return (
    <>
      <rect class="edge" {...at} />
      <rect {...at} stroke={`hsl(${one.hue} 90% 62%)`} />
      <text
        x={`${drawn.textX}%`}
        y={at.y}
        dy={drawn.isInside ? 15 : -5}
        dx={drawn.isEnd ? -3 : 3}
        text-anchor={drawn.isEnd ? 'end' : 'start'}
      >
        {captionOf(one)}
      </text>
    </>
  )
}

/** Bars with scores and labels, in their order. */
export function Scores({ rows }: { rows: readonly { label: string; score: number | null }[] }) {
  // Scores beyond 1 are no probabilities: the greatest one fills its bar.
  const max = Math.max(1, ...rows.map(({ score }) => score ?? 0))
  return (
    <ol class="scores">
      {rows.map(({ label, score }, i) => (
        <li key={i}>
          <Bar parts={[{ kind: 'accent', share: (score ?? 0) / max }]} />
          <b>{score?.toFixed(3)}</b> <span>{label}</span>
        </li>
      ))}
    </ol>
  )
}
