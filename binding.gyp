{
  "variables": {
    # 1: a build under AddressSanitizer and UndefinedBehaviorSanitizer. Load it with LD_PRELOAD=libasan.so.
    "sanitize%": 0,
    # 1: also the addon that only tests load.
    "tests%": 0
  },
  "target_defaults": {
    "include_dirs": ["native"],
    "defines": ["NAPI_CPP_EXCEPTIONS", "NAPI_VERSION=9", "NODE_API_SWALLOW_UNTHROWABLE_EXCEPTIONS", "_GNU_SOURCE"],
    "cflags!": ["-fno-exceptions"],
    "cflags_cc!": ["-fno-exceptions", "-fno-rtti", "-std=gnu++17", "-std=gnu++20"],
    "cflags_cc": [
      "-std=c++17",
      # As fast as node-gyp's -O3, and compiled in less time.
      "-O2",
      "-fvisibility=hidden",
      # Such symbols would keep the library in memory behind the last thread that has loaded it. gcc alone makes them,
      # and alone knows the option.
      "<!@(${CXX:-g++} -fno-gnu-unique -fsyntax-only -x c++ /dev/null 2>/dev/null && echo -fno-gnu-unique || true)",
      # The headers of others are not ours to warn about.
      "-isystem",
      "<!(node -p \"require('node:path').resolve(require('node-addon-api').include_dir)\")",
      "-Wall",
      "-Wextra",
      "-Wpedantic",
      "-Werror"
    ],
    "conditions": [
      [
        "sanitize==1",
        {
          # char is unsigned as on arm64, so that the tests run with both kinds.
          "cflags_cc": ["-funsigned-char", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g", "-O1"],
          "ldflags": ["-fsanitize=address,undefined"]
        }
      ]
    ]
  },
  "targets": [
    {
      # Everything but the addons' entry points, which is compiled once for both. An addon gets what it calls. The longest
      # units come first, so that all cores end together.
      "target_name": "nft_proxier_core",
      "type": "static_library",
      "product_extension": "a",
      "sources": [
        "native/units/socket.cc",
        "native/units/js_nftables.cc",
        "native/units/js_conntrack.cc",
        "native/units/codec.cc",
        "native/units/conntrack.cc"
      ]
    },
    {
      "target_name": "nft_proxier",
      "sources": ["native/js/addon.cc"],
      "dependencies": ["nft_proxier_core"],
      "libraries": ["-lnftnl", "-lmnl"]
    }
  ],
  "conditions": [
    [
      "tests==1",
      {
        "targets": [
          {
            "target_name": "nft_proxier_test",
            "sources": ["test/native/addon/unit.cc"],
            "dependencies": ["nft_proxier_core"],
            "libraries": ["-lnftnl", "-lmnl"]
          }
        ]
      }
    ]
  ]
}
