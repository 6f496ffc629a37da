/** A curve of the last five minutes. The text under it has the same numbers for those who do not see the picture. */

import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import { clockText } from '../format.js'
import { POINTS, type Clock } from './history.js'

export interface Line {
  label: string
  /** A custom property of the style, such as `--accent`. */
  color: string
  values: readonly (number | null)[]
  /** Fills the space below. */
  fill?: boolean
}

const HEIGHT = 150

export function Curve({
  title,
  clock,
  lines,
  text,
  top = 4,
}: {
  title: string
  clock: Clock
  lines: readonly Line[]
  /** A value as text. */
  text: (value: number) => string
  /** The scale ends here at least: small noise must not look like a mountain. */
  top?: number
}) {
  const place = useRef<HTMLDivElement>(null)
  const readout = useRef<HTMLSpanElement>(null)
  const plot = useRef<uPlot | null>(null)
  const shown = useRef({ lines, text })
  shown.current = { lines, text }

  useEffect(() => {
    const at = place.current
    if (at === null) return
    const dark = matchMedia('(prefers-color-scheme: dark)')
    const make = () => {
      plot.current?.destroy()
      plot.current = new uPlot(optionsOf(at, top, shown, readout), dataOf(clock, shown.current.lines), at)
    }
    make()
    dark.addEventListener('change', make)
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: at.clientWidth, height: HEIGHT }))
    resized.observe(at)
    return () => {
      dark.removeEventListener('change', make)
      resized.disconnect()
      plot.current?.destroy()
      plot.current = null
    }
  }, [clock, lines.length])
  useEffect(() => plot.current?.setData(dataOf(clock, lines)))

  const now = lines.map(({ label, values }) => `${label} ${text(values.at(-1) ?? 0)}`).join(', ')
  return (
    <figure class="curve">
      <figcaption>
        <h3>{title}</h3>
        <ul class="legend">
          {lines.map(({ label, color, values }) => (
            <li key={label}>
              <i class={`swatch ${color.slice(2)}`} />
              {label} <b>{text(values.at(-1) ?? 0)}</b>
            </li>
          ))}
        </ul>
        <span class="readout" ref={readout} aria-hidden="true" />
      </figcaption>
      <div class="plot" ref={place} role="img" aria-label={`${title} in the last 5 minutes; now: ${now}`} />
    </figure>
  )
}

/** Times of all five minutes, so that the curve begins at the right and does not stretch. */
function dataOf(clock: Clock, lines: readonly Line[]): uPlot.AlignedData {
  const times = [...clock.last(POINTS)].map((at) => clock.times[at] ?? 0)
  return [times, ...lines.map(({ values }) => [...values])]
}

function optionsOf(
  at: HTMLElement,
  top: number,
  shown: { current: { lines: readonly Line[]; text: (value: number) => string } },
  readout: { current: HTMLElement | null },
): uPlot.Options {
  const style = getComputedStyle(at)
  const color = (name: string) => style.getPropertyValue(name).trim()
  const axis = { stroke: color('--quiet'), grid: { stroke: color('--line'), width: 1 }, ticks: { show: false } }
  const font = `11px ${style.fontFamily}`
  return {
    width: at.clientWidth,
    height: HEIGHT,
    // The label of the last minute is half outside.
    padding: [8, 20, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
    scales: {
      x: { range: (_, __, max) => [max - POINTS, max] },
      y: { range: (_, __, max) => [0, Math.max(max * 1.15, top)] },
    },
    axes: [
      {
        ...axis,
        font,
        size: 22,
        incrs: [60, 120],
        values: (_, times) => times.map((time) => clockText(time * 1000).slice(0, 5)),
      },
      { ...axis, font, size: 52, values: (_, values) => values.map((value) => shown.current.text(value)) },
    ],
    series: [
      {},
      ...shown.current.lines.map(({ label, color: name, fill }) => ({
        label,
        stroke: color(name),
        width: 1.5,
        points: { show: false },
        ...(fill === true ? { fill: `${color(name)}22` } : {}),
      })),
    ],
    hooks: {
      setCursor: [
        (plot) => {
          if (readout.current === null) return
          const i = plot.cursor.idx
          const time = i === null || i === undefined ? undefined : plot.data[0][i]
          readout.current.textContent =
            time === undefined
              ? ''
              : [
                  clockText(time * 1000),
                  ...shown.current.lines.map((line) => `${line.label} ${shown.current.text(line.values[i ?? 0] ?? 0)}`),
                ].join('  ')
        },
      ],
    },
  }
}
