/** Cosine of the angle between two vectors; 0 if one of them is zero. */
export function cosine(a: Float32Array, b: Float32Array): number {
  let [dot, one, two] = [0, 0, 0]
  for (let i = 0; i < a.length; i += 1) {
    const [x = 0, y = 0] = [a[i], b[i]]
    dot += x * y
    one += x * x
    two += y * y
  }
  return one > 0 && two > 0 ? dot / Math.sqrt(one * two) : 0
}
