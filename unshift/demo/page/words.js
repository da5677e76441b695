// The sentences of the page.

const article = (word) => (/^[aeiou8]/i.test(word) ? `an ${word}` : `a ${word}`);
const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** "9 right, 5 up" for [-5, 9]. */
export function moveWords([down, right]) {
  const parts = [];
  if (right) parts.push(`${Math.abs(right)} ${right > 0 ? "right" : "left"}`);
  if (down) parts.push(`${Math.abs(down)} ${down > 0 ? "down" : "up"}`);
  return parts.join(", ") || "no shift";
}

/** "40° to the right" for -40: angles are degrees counter-clockwise. */
export function turnWords(angle, digits = 0) {
  const size = Math.abs(angle).toFixed(digits);
  return Number(size) === 0 ? "no turn" : `${size}° to the ${angle > 0 ? "left" : "right"}`;
}

/** The certainty of an estimate: "high", "medium" or "low". Every sentence about an estimate follows it. */
export const certainty = (confidence) => (confidence >= 0.9 ? "high" : confidence >= 0.5 ? "medium" : "low");

/** The heading above an estimate. */
export const estimateTitle = (confidence) => ({ high: "Estimate", medium: "Likely estimate", low: "Uncertain estimate" })[certainty(confidence)];

/** The line below an estimate. */
export const confidenceWords = (confidence, tied) => `confidence ${Math.round(100 * confidence)}%${tied ? "; several positions tied, the tie rule chose one" : ""}`;

/** Compare an estimate with the truth, `off` pixels away, in words that follow the confidence. */
export function estimateWords(confidence, off, otherwise) {
  const level = certainty(confidence), percent = `${Math.round(100 * confidence)}%`;
  const verb = level === "low" ? "guessed" : "estimated", compared = off === 0 ? "correctly" : off === 1 ? "to within a pixel" : `as ${otherwise}`;
  const doubt = { high: "", medium: ` with moderate confidence (${percent})`, low: ` with low confidence (${percent})` }[level];
  return `${verb} ${compared}${doubt}`;
}

/** The outcome of one prediction: [state, words]. */
export function outcome(prediction, truth, classes) {
  if (truth === null) return ["open", ""];
  if (prediction === truth) return ["right", "right"];
  return ["wrong", `wrong, it is ${article(classes[truth])}`];
}

/** The main sentence: the move, its estimate, the predictions. `estimate` is { shift, angle, confidence }. */
export function sentence({ mode, shift, angle, estimate, offset, alone, restored, truth, classes, noun }) {
  const still = !shift[0] && !shift[1], off = Math.max(Math.abs(offset[0]), Math.abs(offset[1]));
  const moves = [mode !== "rotate" && !still && `shifted by ${moveWords(shift)}`, ["rotate", "pose"].includes(mode) && angle && `turned by ${turnWords(angle)}`];
  const move = moves.filter(Boolean).join(", ") || `the ${noun} is not moved`;
  const turned = turnWords(estimate.angle, 1), shifted = moveWords(estimate.shift);
  const words = {
    rotate: () => `${estimateWords(estimate.confidence, null, turned)} and turned back`,
    pose: () => `${estimateWords(estimate.confidence, null, `${shifted} and ${turned}`)} and undone`,
    shift: () => estimateWords(estimate.confidence, off, shifted) + (still && off === 0 ? "" : " and undone"),
  }[mode === "draw" ? "shift" : mode]();
  let said = alone === restored ? `Prediction ${classes[restored]}, with and without.` : `Alone the classifier predicts ${classes[alone]}; with unshift, ${classes[restored]}.`;
  if (truth !== null && restored !== truth) said += ` It is ${article(classes[truth])}.`;
  return `${capital(move)}; ${words}. ${said}`;
}
