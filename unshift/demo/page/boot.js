// A classic script, so that it runs where modules cannot: a page opened from disk, a script that is missing.
"use strict";
(function () {
  function fatal(text) {
    document.documentElement.dataset.state = "failed";
    var words = document.getElementById("words");
    if (!words) return document.addEventListener("DOMContentLoaded", function () { fatal(text); });
    words.textContent = text;
    document.getElementById("live").textContent = text;
  }
  window.unshiftFatal = fatal;
  if (location.protocol === "file:") {
    fatal("Browsers do not run this page from disk. Serve its folder, for example with: python3 -m http.server");
  }
  // A module that cannot be loaded reports on its element only, in the capture phase.
  window.addEventListener("error", function (event) {
    if (event.target && event.target.tagName === "SCRIPT") {
      fatal("A part of this page could not be loaded (" + event.target.getAttribute("src") + "). Reload to try again.");
    }
  }, true);
})();
