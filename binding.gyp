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
          "cflags_cc": ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g", "-O1"],
          "ldflags": ["-fsanitize=address,undefined"]
        }
      ]
    ]
  },
  "targets": [
    {
      # Everything but the addons' entry points, which is compiled once for both. An addon gets what it calls.
      "target_name": "nft_proxier_core",
      "type": "static_library",
      "product_extension": "a",
      "sources": [
        "native/codec/attr.cc",
        "native/codec/batch.cc",
        "native/codec/element_codec.cc",
        "native/codec/expr_codec.cc",
        "native/codec/expr_table.cc",
        "native/codec/failure.cc",
        "native/codec/legacy_removal.cc",
        "native/codec/legacy_table.cc",
        "native/codec/message_decoder.cc",
        "native/codec/op_codec.cc",
        "native/codec/trace_decoder.cc",
        "native/conntrack/codec.cc",
        "native/conntrack/dump.cc",
        "native/conntrack/filter.cc",
        "native/conntrack/monitor.cc",
        "native/conntrack/pack.cc",
        "native/conntrack/prefilter.cc",
        "native/conntrack/reader.cc",
        "native/conntrack/requests.cc",
        "native/conntrack/socket.cc",
        "native/conntrack/table.cc",
        "native/js/async_task.cc",
        "native/js/batch.cc",
        "native/js/conntrack.cc",
        "native/js/conntrack_dump.cc",
        "native/js/conntrack_piece.cc",
        "native/js/conntrack_values.cc",
        "native/js/end_signals.cc",
        "native/js/exprs.cc",
        "native/js/inotify.cc",
        "native/js/legacy_tables.cc",
        "native/js/legacy_values.cc",
        "native/js/monitor.cc",
        "native/js/ops.cc",
        "native/js/values.cc",
        "native/js/writer.cc",
        "native/socket/address_monitor.cc",
        "native/socket/addresses.cc",
        "native/socket/carried_counts.cc",
        "native/socket/connection.cc",
        "native/socket/dump.cc",
        "native/socket/exchange.cc",
        "native/socket/legacy_tables.cc",
        "native/socket/listener.cc",
        "native/socket/monitor.cc",
        "native/socket/socket.cc",
        "native/socket/trace_monitor.cc"
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
            "sources": [
              "test/native/addon/addon.cc",
              "test/native/addon/codec.cc",
              "test/native/addon/conntrack.cc",
              "test/native/addon/legacy_tables.cc",
              "test/native/addon/messages.cc"
            ],
            "dependencies": ["nft_proxier_core"],
            "libraries": ["-lnftnl", "-lmnl"]
          }
        ]
      }
    ]
  ]
}
