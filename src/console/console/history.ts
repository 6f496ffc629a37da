/** The last five minutes, a point each second, in rings of fixed size. Pure. */

/** Points of a curve; each stands for a second. */
export const POINTS = 300
/** Points that a rate is the mean of: a slow model answers less than once a second. */
const RATE_POINTS = 5
/** Points that tell what is the case lately; one second alone says little. */
export const LATELY = 15

/** The seconds of all rings of a page. A second without an event is a gap: there were no numbers. */
export class Clock {
  readonly times = new Float64Array(POINTS).fill(Number.NaN)
  /** Seconds since the page was opened. */
  count = 0

  /** Place of the current second in each ring. */
  get at(): number {
    return (this.count + POINTS - 1) % POINTS
  }

  /** Begins the next second. */
  next(time_ms: number): void {
    this.count += 1
    this.times[this.at] = time_ms / 1000
  }

  /** Places of the last seconds, the oldest first. */
  *last(points: number): Generator<number> {
    for (let i = Math.min(points, this.count) - 1; i >= 0; i -= 1) yield (this.at - i + POINTS) % POINTS
  }
}

/** Values of each second by name; NaN where there is none. */
export class Rings<Name extends string> {
  readonly #clock: Clock
  readonly #rings: Readonly<Record<Name, Float32Array>>
  readonly #begin: number

  constructor(clock: Clock, names: readonly Name[], begin: number) {
    this.#clock = clock
    this.#begin = begin
    this.#rings = Object.fromEntries(names.map((name) => [name, new Float32Array(POINTS).fill(begin)])) as Record<
      Name,
      Float32Array
    >
  }

  /** The current second has no numbers. */
  skip(): void {
    for (const ring of Object.values<Float32Array>(this.#rings)) ring[this.#clock.at] = Number.NaN
  }

  /** The current second has what a new ring has, and nothing of five minutes ago. */
  begin(): void {
    for (const ring of Object.values<Float32Array>(this.#rings)) ring[this.#clock.at] = this.#begin
  }

  set(name: Name, value: number): void {
    this.#rings[name][this.#clock.at] = value
  }

  /** Sum of the last seconds. */
  sum(name: Name, points: number): number {
    // Called some times for each version in each second: the generator would take twice as long.
    const ring = this.#rings[name]
    let sum = 0
    for (let i = Math.min(points, this.#clock.count, POINTS); i > 0; i -= 1)
      sum += ring[(this.#clock.at - i + 1 + POINTS) % POINTS] || 0
    return sum
  }

  /** Mean per second of what was counted lately; of at most the seconds there are. */
  rate(name: Name, points = RATE_POINTS): number {
    return this.sum(name, points) / Math.max(1, Math.min(points, this.#clock.count - 1))
  }

  /** Mean of what is there at a time, such as waiting requests. */
  mean(name: Name, points: number): number {
    return this.sum(name, points) / Math.max(1, Math.min(points, this.#clock.count))
  }

  /** The values of all seconds, the oldest first; null for a gap. */
  values(name: Name): (number | null)[] {
    return [...this.#clock.last(POINTS)].map((at) => {
      const value = this.#rings[name][at] ?? Number.NaN
      return Number.isNaN(value) ? null : value
    })
  }
}
