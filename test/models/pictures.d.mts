export function writeDetector(root: string, name: string, labels: string[], found: number[][]): void
export function writePictureClassifier(root: string, name: string, labels: string[], probabilities: number[]): void
export function pngOf(width: number, height: number, rectangles: number[][]): Buffer
