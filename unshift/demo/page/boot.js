// A classic script, so that it runs when modules cannot: the page is opened from disk, or a script is missing.
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
  // An error while loading a module fires on its element only, and does not bubble.
  window.addEventListener("error", function (event) {
    if (event.target && event.target.tagName === "SCRIPT") {
      fatal("A part of this page could not be loaded (" + event.target.getAttribute("src") + "). Reload to try again.");
    }
  }, true);
})();
