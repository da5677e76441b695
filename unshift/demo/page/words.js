// What just happened, in plain words.

const article = (what) => (/^[aeiou8]/i.test(what) ? `an ${what}` : `a ${what}`);

const capital = (text) => text[0].toUpperCase() + text.slice(1);

/** "9 right, 5 up" for [-5, 9]. */
export function moveWords([down, right]) {
  const parts = [];
  if (right) parts.push(`${Math.abs(right)} ${right > 0 ? "right" : "left"}`);
  if (down) parts.push(`${Math.abs(down)} ${down > 0 ? "down" : "up"}`);
  return parts.join(", ") || "0";
}

/** "40° to the right" for -40, which is degrees counter-clockwise. */
export function turnWords(angle, digits = 0) {
  const size = Math.abs(angle).toFixed(digits);
  return Number(size) === 0 ? "0°" : `${size}° to the ${angle > 0 ? "left" : "right"}`;
}

/** The judgement of one verdict: [state, words]. */
export function judge(verdict, truth, classes) {
  if (truth === null) return ["open", ""];
  if (verdict === truth) return ["right", "right"];
  return ["wrong", `wrong, it is ${article(classes[truth])}`];
}

/** The sentence: what was done, what was found, what the classifier says of it. */
export function sentence({ mode, shift, angle, foundShift, offset, foundAngle, alone, restored, truth, classes, noun }) {
  const said = (verdict) => classes[verdict];
  let done, found;
  if (mode === "rotate") {
    done = angle ? `Turned by ${turnWords(angle)}; ` : "Not turned; ";
    found = `read as ${turnWords(foundAngle, 1)} and turned back. `;
  } else if (mode === "pose") {
    const moved = shift[0] || shift[1], parts = [moved && `shifted by ${moveWords(shift)}`, angle && `turned by ${turnWords(angle)}`];
    done = capital(parts.filter(Boolean).join(", ") || `the ${noun} is where it came from`) + "; ";
    found = `read as ${moveWords(foundShift)} and ${turnWords(foundAngle, 1)}, and undone. `;
  } else {
    const moved = shift[0] || shift[1], far = Math.max(Math.abs(offset[0]), Math.abs(offset[1]));
    done = moved ? `Shifted by ${moveWords(shift)}; ` : `The ${noun} is where it came from; `;
    if (!moved && far === 0) found = "nothing to undo. ";
    else if (far === 0) found = "found and undone. ";
    else if (far === 1) found = moved ? "found to within a pixel and undone. " : "found to within a pixel. ";
    else found = `read as ${moveWords(foundShift)} and undone. `;
  }
  let verdict;
  if (alone === restored) verdict = `Verdict ${said(restored)}, with and without.`;
  else verdict = `Alone the classifier says ${said(alone)}; with unshift, ${said(restored)}.`;
  if (truth !== null && restored !== truth) verdict += ` It is ${article(classes[truth])}.`;
  return done + found + verdict;
}
